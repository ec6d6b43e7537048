import type { EventInput } from '@margay/contracts';
import { statusOf, type Completion } from '@margay/log';
import { untilAborted } from '../abort';
import type { ModelUsage } from '../ports';
import { addUsage } from '../state/agent-state';
import type { AgentRun } from './agent-run';
import { plainText } from './plain-text';
import type { Carried } from './writer';

const INBOX_POLL_MS = 20;

/** How a run is to end. */
export interface Closing {
  doneReason: string;
  /** Empty = a closure marker says why nothing was answered. */
  text: string;
  events: EventInput[];
  completion?: Partial<Completion>;
  /** Of the answer that this end acts on. */
  usage?: ModelUsage;
  /** Ends also if messages came that nobody answered; else they get another step. */
  isForced: boolean;
}

export interface FinishedRun {
  outcome: 'finished';
  status: string;
  doneReason: string;
  /** What the transcript's `assistant` event says. */
  text: string;
  error?: string;
  usage: ModelUsage;
  steps: number;
}

/**
 * Ends the run. @returns undefined if messages came that want an answer first; `carried` is then still to be stored
 * @param stop what it gives up at
 */
export async function tryFinish(
  run: AgentRun,
  carried: Carried,
  closing: Closing,
  stop: AbortSignal = run.stop,
): Promise<FinishedRun | undefined> {
  const text = closing.text === '' ? closureMarker(closing) : closing.text;
  const completion: Completion = {
    done: true,
    done_reason: closing.doneReason,
    task_result: closing.text === '' ? null : closing.text,
    ...closing.completion,
  };
  for (;;) {
    const unread = unreadUpTo(run);
    if (unread !== undefined && !closing.isForced) return undefined;
    const progress = {
      events: [...carried.events, ...closing.events],
      records: carried.records,
      // Named also where nothing is new: a copy that is decided late must not end a run that went on after a refusal.
      consumedTo: unread ?? run.consumedTo,
    };
    const finishing = run.ports.journal.finish(progress, { text, completion });
    if ((await untilAborted(finishing, stop)) === 'finished') return finished(run, closing, text, completion);
    await newsOf(run, unread, stop);
  }
}

/** Number of the newest message that is not in the conversation. */
export function unreadUpTo(run: AgentRun): number | undefined {
  return run.ports.inbox.since(run.consumedTo).at(-1)?.n;
}

/** The log holds messages beyond the last one seen; the inbox may show them a little later. */
async function newsOf(run: AgentRun, seen: number | undefined, stop: AbortSignal): Promise<void> {
  while (unreadUpTo(run) === seen) {
    stop.throwIfAborted();
    await run.ports.clock.sleep(INBOX_POLL_MS, stop);
  }
}

function finished(run: AgentRun, closing: Closing, text: string, completion: Completion): FinishedRun {
  const { usage, steps } = run.state.run;
  const lastRun = { id: run.state.run.runId, done: completion.done, doneReason: completion.done_reason };
  return {
    outcome: 'finished',
    status: statusOf({ ...run.head, run: null, terminated: null, lastRun }),
    doneReason: closing.doneReason,
    text,
    ...(completion.error === undefined ? {} : { error: completion.error }),
    usage: closing.usage ? addUsage(usage, closing.usage) : usage,
    steps,
  };
}

function closureMarker({ doneReason, completion }: Closing): string {
  if (doneReason === 'error') return `(Run interrupted by error: ${completion?.error ?? 'unknown'})`;
  if (doneReason === 'budget_exhausted') return '(Run stopped: step limit reached before final answer)';
  if (doneReason === 'completed') return '(Run ended: the model gave no final answer)';
  return `(Run ended: ${doneReason})`;
}

/** The closing of a run that can't go on. */
export function failureClosing(reason: string, message: string, events: EventInput[], modelsTried?: string[]): Closing {
  const error = plainText(message);
  return {
    doneReason: 'error',
    text: '',
    events,
    completion: {
      error,
      last_error: error,
      failure_reason: reason,
      ...(modelsTried ? { models_tried: modelsTried } : {}),
    },
    isForced: true,
  };
}
