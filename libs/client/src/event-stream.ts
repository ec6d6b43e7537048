import { InternalError, isMargayError, UnavailableError, type MargayError } from '@margay/errors';
import { aborted, fullJitterMs, sleep } from './clock';
import { eventOf, parseFrame, type SessionStateItem, type StreamItem, type WireEvent } from './events';
import { FrameReader, type Frame } from './frame-reader';
import { Position, type Cursor } from './position';
import type { Transport } from './transport';

export interface ConnectionChange {
  /** `lost`: the next attempt follows after `delayMs`. */
  state: 'connecting' | 'open' | 'lost' | 'closed';
  /** Connections since the last one that stayed open for 30 s, from 1. */
  attempt: number;
  delayMs?: number;
  reason?: string;
}

export interface StreamOptions {
  /** Where to go on; default: the session's first event. */
  after?: Cursor;
  /** Goes on across runs until aborted or the session is terminated. */
  follow?: boolean;
  /** False leaves token deltas out; default true. */
  deltas?: boolean;
  signal?: AbortSignal;
  onConnection?: (change: ConnectionChange) => void;
}

const SILENCE_MS = 40_000;
const MAX_AHEAD = 256;
const STEADY_MS = 30_000;
const BACK_OFF_MS = { base: 500, cap: 15_000 };
/** `follow` asks an idle session again so often, until the gateway serves the multiplexed route. */
const FOLLOW_MS = 1000;

/**
 * The items of one session over as many connections as it takes: each stored event once and in order, deltas, and
 * `session_state` where it changed. Ends at the server's `stream_end`.
 */
export class EventStream {
  readonly #position: Position;
  readonly #path: string;
  readonly #what: string;
  #attempt = 0;
  #retryMs = 0;
  #openedAt: number | undefined;
  #lastState = '';
  #isTerminated = false;

  constructor(
    private readonly transport: Transport,
    sessionId: string,
    private readonly options: StreamOptions,
  ) {
    this.#position = new Position(options.after);
    this.#path = `/api/sessions/${encodeURIComponent(sessionId)}/stream`;
    this.#what = `the stream of session ${sessionId}`;
  }

  async *items(): AsyncGenerator<StreamItem, void, undefined> {
    try {
      for (;;) {
        const delayMs = yield* this.#connection();
        if (delayMs === undefined) return;
        await sleep(this.transport.settings.clock, delayMs, this.#what, this.options.signal);
      }
    } finally {
      this.#report('closed');
    }
  }

  /** One connection; answers how long to wait for the next one, undefined at the end. */
  async *#connection(): AsyncGenerator<StreamItem, number | undefined, undefined> {
    this.#attempt += 1;
    this.#openedAt = undefined;
    let lost: MargayError | undefined;
    try {
      if (yield* this.#read()) return this.#afterEnd();
    } catch (error) {
      if (!isMargayError(error) || !error.retryable) throw error;
      lost = error;
    }
    return this.#afterLoss(lost);
  }

  /** True once the server said `stream_end`; false after a close without it. */
  async *#read(): AsyncGenerator<StreamItem, boolean, undefined> {
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
        const wire = parseFrame(frame.data);
        if (wire.type === 'stream_end') return true;
        const item = this.#itemOf(wire, frame);
        if (item) yield item;
        this.#throwIfAborted();
      }
      this.#throwIfAborted();
      return false;
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
    const { headers, query } = this.#position.resume();
    const call = {
      headers: { ...headers, Accept: 'text/event-stream' },
      query: { ...query, ids: 1, ...(this.options.deltas === false ? { deltas: 0 } : {}) },
    };
    const timer = clock.setTimeout(() => controller.abort(), SILENCE_MS);
    const response = await this.transport
      .open('GET', this.#path, call, controller.signal)
      .finally(() => clock.clearTimeout(timer));
    if (!response.body || !response.headers.get('Content-Type')?.startsWith('text/event-stream'))
      throw new InternalError('bad_answer', `${this.#path} was answered with something else than an event stream`);
    this.#openedAt = clock.now();
    this.#report('open');
    return new FrameReader(response.body as ReadableStream<Uint8Array>, {
      clock,
      silenceMs: SILENCE_MS,
      maxAhead: MAX_AHEAD,
      onRetry: (delayMs) => (this.#retryMs = delayMs),
    });
  }

  #itemOf(wire: WireEvent, frame: Frame): StreamItem | undefined {
    if (wire.type === 'session_state') return this.#stateOf(wire as unknown as SessionStateItem, frame.data);
    if (wire.type === 'agent_message_delta') return this.options.deltas === false ? undefined : eventOf(wire);
    // A frame that is no stored event has no time: it passes and moves nothing.
    const isNew = typeof wire.ts !== 'string' || this.#position.accept(wire, frame.data, frame.id);
    return isNew ? eventOf(wire) : undefined;
  }

  /** A new connection repeats the state; only a changed one is an item. */
  #stateOf(state: SessionStateItem, text: string): SessionStateItem | undefined {
    this.#isTerminated = state.terminated;
    if (text === this.#lastState) return undefined;
    this.#lastState = text;
    return state;
  }

  #afterEnd(): number | undefined {
    if (!this.options.follow || this.#isTerminated) return undefined;
    this.#attempt = 0;
    return FOLLOW_MS;
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
    if (this.options.signal?.aborted) throw aborted(this.#what, this.options.signal);
  }

  #report(state: ConnectionChange['state'], delayMs?: number, reason?: string): void {
    const change: ConnectionChange = { state, attempt: this.#attempt };
    if (delayMs !== undefined) change.delayMs = delayMs;
    if (reason !== undefined) change.reason = reason;
    this.options.onConnection?.(change);
  }
}
