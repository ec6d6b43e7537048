import type { sandboxdPb } from '@margay/contracts';
import { OutputLog } from '@margay/toolbox';
import type { StoredResult } from '../journal/entries';

/** More output than this is not streamed; the result names the file that holds all of it. */
const STREAMED_BYTES = 1024 * 1024;
const CHUNK_BYTES = 64 * 1024;
/** Small writes in quick succession travel as one message. */
const COALESCE_MS = 10;

/** Why a call is ended from outside; `graceMs` lies between TERM and KILL. */
export class CallCancelled extends Error {
  override readonly name = 'AbortError';
  constructor(
    readonly kind: 'cancelled' | 'killed',
    readonly graceMs: number,
    readonly limitHit?: string,
  ) {
    super(`the call was ${kind}`);
  }
}

/** One call of this life of the daemon: running, or finished and still in memory. */
export class Call {
  readonly output: OutputLog;
  private readonly abort = new AbortController();
  private end: { result: StoredResult } | { error: unknown } | undefined;
  private readonly watchers = new Set<() => void>();
  private followers = 0;
  private readonly over: Promise<void>;

  constructor(
    readonly argHash: string,
    spillFile: string,
    run: (call: Call) => Promise<StoredResult>,
  ) {
    this.output = new OutputLog({ spillFile });
    this.over = Promise.resolve()
      .then(() => run(this))
      .then(
        (result) => this.finish({ result }),
        (error: unknown) => this.finish({ error }),
      );
  }

  get signal(): AbortSignal {
    return this.abort.signal;
  }

  get isRunning(): boolean {
    return this.end === undefined;
  }

  /** Resolves when the call has ended and its result is stored. */
  get ended(): Promise<void> {
    return this.over;
  }

  stop(reason: Error): void {
    this.abort.abort(reason);
  }

  /** Output from an offset on as it comes, then the end. Throws the signal's reason when that is aborted. */
  async *follow(fromOffset: number, signal: AbortSignal): AsyncIterable<sandboxdPb.ExecuteResponse> {
    this.followers += 1;
    const stop = this.output.onAppend(() => this.wake());
    const wake = (): void => this.wake();
    signal.addEventListener('abort', wake);
    try {
      yield* this.outputFrom(fromOffset, signal);
      if (this.end && 'error' in this.end) throw this.end.error;
      if (this.end) yield { message: { $case: 'finished', value: this.end.result } };
    } finally {
      stop();
      signal.removeEventListener('abort', wake);
      this.followers -= 1;
      await this.closeIfUnused();
    }
  }

  private async *outputFrom(fromOffset: number, signal: AbortSignal): AsyncIterable<sandboxdPb.ExecuteResponse> {
    let offset = fromOffset;
    for (;;) {
      signal.throwIfAborted();
      const isOver = this.end !== undefined;
      const room = Math.min(CHUNK_BYTES, STREAMED_BYTES - offset);
      const bytes = room > 0 ? await this.output.read(offset, room) : Buffer.alloc(0);
      if (bytes.length > 0) {
        yield { message: { $case: 'output', value: { stream: 'stdout', offset, bytes } } };
        offset += bytes.length;
        if (bytes.length < room && this.isRunning) await this.change(COALESCE_MS);
      } else if (isOver) return;
      else if (this.isRunning && !signal.aborted && !this.hasMore(offset)) await this.change();
    }
  }

  private hasMore(offset: number): boolean {
    return offset < Math.min(this.output.readableBytes, STREAMED_BYTES);
  }

  /** Resolves at the next output or end; with `delayMs` after that time instead of at output. */
  private change(delayMs?: number): Promise<void> {
    return new Promise((resolve) => {
      if (delayMs !== undefined) setTimeout(resolve, delayMs);
      else this.watchers.add(resolve);
    });
  }

  private wake(): void {
    const watchers = [...this.watchers];
    this.watchers.clear();
    for (const watcher of watchers) watcher();
  }

  private async finish(end: { result: StoredResult } | { error: unknown }): Promise<void> {
    this.end = end;
    this.wake();
    await this.closeIfUnused();
  }

  private async closeIfUnused(): Promise<void> {
    if (this.end && this.followers === 0) await this.output.close();
  }
}
