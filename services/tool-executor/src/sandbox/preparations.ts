import { isMargayError, UnavailableError } from '@margay/errors';
import type { Refusal } from '../driver/sandbox-driver';
import type { LiveSandbox } from './sandbox-claims';
import type { SandboxPreparation } from './sandbox-preparation';
import type { SandboxWish } from './sandbox-registry';

interface Running {
  sandbox: LiveSandbox;
  done: Promise<void>;
  stop: AbortController;
  refusal?: Refusal;
}

/** Another sandbox would not do either. */
const FOR_GOOD = new Set(['executor_closing', 'workspace_deleting', 'sandbox_unavailable', 'store_unavailable']);
/** Sandboxes may be lost while they are prepared; so many are tried. */
const TRIES = 3;

/** Which sandboxes are ready for calls, and what is being done about those that are not. */
export class Preparations {
  private readonly prepared = new WeakSet<LiveSandbox>();
  /** By session. */
  private readonly running = new Map<string, Running>();
  private isClosing = false;

  constructor(
    private readonly preparation: SandboxPreparation | undefined,
    private readonly token: (sandbox: LiveSandbox) => Promise<string>,
  ) {}

  /** False where there is none. */
  isPrepared(sandbox: LiveSandbox | undefined): boolean {
    return sandbox !== undefined && (!this.preparation || this.prepared.has(sandbox));
  }

  /** A sandbox that is ready; one that is lost meanwhile is replaced. */
  async obtain(
    wish: SandboxWish,
    { claim, forsake }: { claim: () => Promise<LiveSandbox>; forsake: (sandbox: LiveSandbox) => void },
  ): Promise<LiveSandbox> {
    for (let left = TRIES; ; left -= 1) {
      const sandbox = await claim();
      try {
        await this.prepare(wish, sandbox);
        return sandbox;
      } catch (error) {
        if (left <= 1 || !isLostMeanwhile(error)) throw error;
        forsake(sandbox);
      }
    }
  }

  /** Several callers share one preparation. */
  private async prepare(wish: SandboxWish, sandbox: LiveSandbox): Promise<void> {
    if (this.isPrepared(sandbox)) return;
    const known = this.running.get(wish.sessionId);
    if (known?.sandbox === sandbox) return known.done;
    known?.stop.abort(ended());
    return this.start(wish, sandbox).done;
  }

  /** What a session waits for; undefined while nothing is to be told. */
  refusalOf(sessionId: string): Refusal | undefined {
    return this.running.get(sessionId)?.refusal;
  }

  /** Its sandbox is being ended. */
  cancel(sessionId: string): void {
    this.running.get(sessionId)?.stop.abort(ended());
  }

  async close(): Promise<void> {
    this.isClosing = true;
    const all = [...this.running.values()];
    for (const { stop } of all) stop.abort(closing());
    await Promise.allSettled(all.map(({ done }) => done));
  }

  private start(wish: SandboxWish, sandbox: LiveSandbox): Running {
    const stop = new AbortController();
    if (this.isClosing) stop.abort(closing());
    const running: Running = { sandbox, stop, done: Promise.resolve() };
    const context = {
      token: () => this.token(sandbox),
      report: (refusal: Refusal) => void (running.refusal = refusal),
      signal: stop.signal,
    };
    running.done = (async () => {
      try {
        await this.preparation?.prepare(wish, sandbox, context);
        this.prepared.add(sandbox);
      } catch (error) {
        throw stop.signal.aborted ? (stop.signal.reason as Error) : error;
      } finally {
        if (this.running.get(wish.sessionId) === running) this.running.delete(wish.sessionId);
      }
    })();
    this.running.set(wish.sessionId, running);
    return running;
  }
}

function isLostMeanwhile(error: unknown): boolean {
  return isMargayError(error) && error.code === 'UNAVAILABLE' && !FOR_GOOD.has(error.reason);
}

function ended(): Error {
  return new UnavailableError('sandbox_ended', 'The sandbox was ended before it was ready; nothing was run.');
}

function closing(): Error {
  return new UnavailableError('executor_closing', 'tool-executor is shutting down; another replica goes on.');
}
