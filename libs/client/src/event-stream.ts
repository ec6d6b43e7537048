import { Connections, type ConnectionOptions } from './connections';
import { eventOf, parseFrame, type SessionStateItem, type StreamItem, type WireEvent } from './events';
import type { Frame } from './frame-reader';
import { Position, type Cursor } from './position';
import type { Transport } from './transport';

export interface StreamOptions extends ConnectionOptions {
  /** Where to go on; default: the session's first event. */
  after?: Cursor;
  /** Goes on across runs until aborted or the session is terminated. */
  follow?: boolean;
  /** False leaves token deltas out; default true. */
  deltas?: boolean;
}

/** `follow` asks an idle session again so often. */
const FOLLOW_MS = 1000;

/**
 * The items of one session over as many connections as it takes: each stored event once and in order, deltas, and
 * `session_state` where it changed. Ends at the server's `stream_end`.
 */
export class EventStream {
  readonly #position: Position;
  readonly #connections: Connections;
  #lastState = '';
  #isTerminated = false;

  constructor(
    transport: Transport,
    sessionId: string,
    private readonly options: StreamOptions,
  ) {
    this.#position = new Position(options.after);
    const target = {
      path: `/api/sessions/${encodeURIComponent(sessionId)}/stream`,
      what: `the stream of session ${sessionId}`,
      resume: () => this.#resume(),
    };
    this.#connections = new Connections(transport, target, options);
  }

  async *items(): AsyncGenerator<StreamItem, void, undefined> {
    for await (const frame of this.#connections.frames()) {
      const wire = parseFrame(frame.data);
      if (wire.type === 'stream_end') {
        if (!this.options.follow || this.#isTerminated) return;
        this.#connections.renewIn(FOLLOW_MS);
        continue;
      }
      const item = this.#itemOf(wire, frame);
      if (item) yield item;
    }
  }

  #resume() {
    const { headers, query } = this.#position.resume();
    return { headers, query: { ...query, ids: 1, ...(this.options.deltas === false ? { deltas: 0 } : {}) } };
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
}
