import {
  isMargayError,
  type ConnectionChange,
  type Session,
  type SessionStatus,
  type StreamItem,
} from '@margay/client';
import type { CommandContext } from './command-context';
import { EXIT } from './failures';
import type { Renderer } from './render/renderer';

const TWICE_MS = 2000;
const CANCEL_MS = 5000;

export interface Watched {
  session: Session;
  renderer: Renderer;
  /** Opens the stream; its abort detaches. */
  open(options: { signal: AbortSignal; onConnection: (change: ConnectionChange) => void }): AsyncIterable<StreamItem>;
  /** True: the first Ctrl-C interrupts the run and only a second one leaves. */
  ownsRun: boolean;
  /** The run is cancelled when it takes longer. */
  timeLimitMs?: number | undefined;
}

/** Why watching ended: the stream's own end, or one of ours. */
export type WatchEnd = 'ended' | 'interrupted' | 'detached' | 'timeLimit' | 'waiting';

const EXIT_BY_STATUS: Record<SessionStatus | 'waiting', number> = {
  completed: EXIT.completed,
  idle: EXIT.completed,
  running: EXIT.completed,
  failed: EXIT.failed,
  incomplete: EXIT.failed,
  blocked: EXIT.failed,
  unmet_goal: EXIT.failed,
  canceled: EXIT.interrupted,
  awaiting_approval: EXIT.waiting,
  waiting: EXIT.waiting,
  terminated: EXIT.conflict,
};

export const exitCodeOfStatus = (status: SessionStatus | 'waiting'): number => EXIT_BY_STATUS[status] ?? EXIT.failed;

/** Renders a stream to its end, with Ctrl-C, the time limit and lost connections in hand. */
export async function watch(context: CommandContext, watched: Watched): Promise<WatchEnd> {
  const { session, renderer, timeLimitMs } = watched;
  const { clock } = context.terminal;
  const controller = new AbortController();
  let end: WatchEnd = 'ended';
  const leave = (why: WatchEnd): void => {
    end = why;
    controller.abort();
  };
  const failed = (error: unknown): void => renderer.note(error instanceof Error ? error.message : String(error));

  let lastPress = -Infinity;
  const stopListening = context.terminal.onInterrupt(() => {
    const isSecond = clock.now() - lastPress <= TWICE_MS;
    lastPress = clock.now();
    if (!watched.ownsRun || isSecond) return leave('detached');
    end = 'interrupted';
    renderer.note('interrupting; Ctrl-C again within 2 s leaves and lets the run go on');
    session.interrupt().catch(failed);
  });

  const timers: unknown[] = [];
  if (timeLimitMs !== undefined) {
    const stop = (): void => {
      end = 'timeLimit';
      timers.push(clock.setTimeout(() => leave('timeLimit'), CANCEL_MS));
      session.cancel().catch(failed);
    };
    timers.push(clock.setTimeout(stop, timeLimitMs));
  }

  try {
    for await (const item of watched.open({ signal: controller.signal, onConnection: reporter(renderer) })) {
      renderer.item(item);
      if (watched.ownsRun && item.type === 'session_state' && item.waiting) {
        end = 'waiting';
        break;
      }
    }
  } catch (error) {
    if (!controller.signal.aborted || !isMargayError(error) || error.reason !== 'aborted') throw error;
  } finally {
    timers.forEach((timer) => clock.clearTimeout(timer));
    stopListening();
    renderer.end();
  }
  return end;
}

/** Says once per attempt that the connection is gone; the first quick return is not worth a word. */
const reporter =
  (renderer: Renderer) =>
  ({ state, attempt, delayMs = 0 }: ConnectionChange): void => {
    if (state === 'lost' && (attempt > 1 || delayMs >= 1000))
      renderer.note(`reconnecting (${attempt}), the run goes on`);
  };
