import { InternalError, isMargayError, UnavailableError, type MargayError } from '@margay/errors';
import { aborted, fullJitterMs, sleep } from './clock';
import { FrameReader, type Frame } from './frame-reader';
import type { Call, Transport } from './transport';

export interface ConnectionChange {
  /** `lost`: the next attempt follows after `delayMs`. */
  state: 'connecting' | 'open' | 'lost' | 'closed';
  /** Connections since the last one that stayed open for 30 s, from 1. */
  attempt: number;
  delayMs?: number;
  reason?: string;
}

export interface ConnectionOptions {
  signal?: AbortSignal;
  onConnection?: (change: ConnectionChange) => void;
}

export interface ConnectionTarget {
  path: string;
  /** Names the stream in errors. */
  what: string;
  /** Headers and query of the next connection: where it goes on. */
  resume: () => Pick<Call, 'headers' | 'query'>;
}

const SILENCE_MS = 40_000;
const MAX_AHEAD = 256;
const STEADY_MS = 30_000;
const BACK_OFF_MS = { base: 500, cap: 15_000 };

/** The frames of one stream over as many connections as it takes: a lost one is followed by another, with back-off. */
export class Connections {
  #attempt = 0;
  #retryMs = 0;
  #openedAt: number | undefined;
  #renewMs: number | undefined;

  constructor(
    private readonly transport: Transport,
    private readonly target: ConnectionTarget,
    private readonly options: ConnectionOptions,
  ) {}

  /** Ends with its consumer only. An abort and what no repetition mends reject. */
  async *frames(): AsyncGenerator<Frame, void, undefined> {
    try {
      for (;;) {
        const delayMs = yield* this.#connection();
        await sleep(this.transport.settings.clock, delayMs, this.target.what, this.options.signal);
      }
    } finally {
      this.#report('closed');
    }
  }

  /** The connection has said all it will: the next one is made after this time, as if it were the first. */
  renewIn(delayMs: number): void {
    this.#renewMs = delayMs;
  }

  /** One connection; answers how long to wait for the next one. */
  async *#connection(): AsyncGenerator<Frame, number, undefined> {
    this.#attempt += 1;
    this.#openedAt = undefined;
    this.#renewMs = undefined;
    let lost: MargayError | undefined;
    try {
      yield* this.#read();
    } catch (error) {
      if (!isMargayError(error) || !error.retryable) throw error;
      lost = error;
    }
    if (this.#renewMs === undefined) return this.#afterLoss(lost);
    this.#attempt = 0;
    return this.#renewMs;
  }

  async *#read(): AsyncGenerator<Frame, void, undefined> {
    const { signal } = this.options;
    const controller = new AbortController();
    let reader: FrameReader | undefined;
    const stop = (): void => {
      controller.abort();
      reader?.close();
    };
    signal?.addEventListener('abort', stop);
    try {
      this.#throwIfAborted();
      reader = await this.#open(controller);
      for (let frame = await reader.next(); frame; frame = await reader.next()) {
        this.#throwIfAborted();
        yield frame;
        this.#throwIfAborted();
        if (this.#renewMs !== undefined) return;
      }
      this.#throwIfAborted();
    } catch (error) {
      this.#throwIfAborted();
      throw error;
    } finally {
      signal?.removeEventListener('abort', stop);
      stop();
    }
  }

  async #open(controller: AbortController): Promise<FrameReader> {
    this.#report('connecting');
    const { clock } = this.transport.settings;
    const { path, resume } = this.target;
    const { headers, query } = resume();
    const call: Call = { headers: { ...headers, Accept: 'text/event-stream' }, ...(query ? { query } : {}) };
    const timer = clock.setTimeout(() => controller.abort(), SILENCE_MS);
    const response = await this.transport
      .open('GET', path, call, controller.signal)
      .finally(() => clock.clearTimeout(timer));
    if (!response.body || !response.headers.get('Content-Type')?.startsWith('text/event-stream'))
      throw new InternalError('bad_answer', `${path} was answered with something else than an event stream`);
    this.#openedAt = clock.now();
    this.#report('open');
    return new FrameReader(response.body as ReadableStream<Uint8Array>, {
      clock,
      silenceMs: SILENCE_MS,
      maxAhead: MAX_AHEAD,
      onRetry: (delayMs) => (this.#retryMs = delayMs),
    });
  }

  #afterLoss(lost: MargayError | undefined): number {
    const { clock } = this.transport.settings;
    if (this.#openedAt !== undefined && clock.now() - this.#openedAt >= STEADY_MS) this.#attempt = 1;
    // A clean close is a server that goes or a stream that was quiet: back at once, but not twice in a row.
    const isFirstClean = lost === undefined && this.#attempt === 1;
    const jitterMs = isFirstClean ? 0 : fullJitterMs(clock, this.#attempt - 1, BACK_OFF_MS.base, BACK_OFF_MS.cap);
    const delayMs = Math.max(jitterMs, this.#retryMs, lost?.retryAfterMs ?? 0);
    this.#report('lost', delayMs, (lost ?? new UnavailableError('network', 'the server closed the stream')).message);
    return delayMs;
  }

  #throwIfAborted(): void {
    if (this.options.signal?.aborted) throw aborted(this.target.what, this.options.signal);
  }

  #report(state: ConnectionChange['state'], delayMs?: number, reason?: string): void {
    const change: ConnectionChange = { state, attempt: this.#attempt };
    if (delayMs !== undefined) change.delayMs = delayMs;
    if (reason !== undefined) change.reason = reason;
    this.options.onConnection?.(change);
  }
}
