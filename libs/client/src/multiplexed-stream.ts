import { InvalidArgumentError } from '@margay/errors';
import { Connections, type ConnectionOptions } from './connections';
import { eventOf, parseFrame, type SessionStateItem, type StreamItem } from './events';
import type { Frame } from './frame-reader';
import type { Transport } from './transport';

export interface MultiplexOptions extends ConnectionOptions {
  /** At most 100, each with the number of the last event that is known; 0 = from the first. */
  sessions?: Readonly<Record<string, number>>;
  /** True: also the states of all sessions in the caller's list, as they change. */
  user?: boolean;
  /** False leaves token deltas out; default true. */
  deltas?: boolean;
}

/** `refused`: the session is not there or may not be read; nothing more comes of it. `user`: of the caller's own feed. */
export type MultiplexItem =
  | { of: 'session'; sessionId: string; item: StreamItem }
  | { of: 'user'; sessionId: string; state: SessionStateItem }
  | { of: 'refused'; sessionId: string; code: string };

interface Lane {
  seq: number;
  lastState: string;
}

/** Many sessions over one connection at a time, across runs: each stored event once and in order within its session. */
export class MultiplexedStream {
  readonly #lanes: Map<string, Lane>;
  readonly #connections: Connections;

  constructor(
    transport: Transport,
    private readonly options: MultiplexOptions,
  ) {
    const sessions = Object.entries(options.sessions ?? {});
    this.#lanes = new Map(sessions.map(([id, seq]) => [id, { seq, lastState: '' }]));
    if (!this.#lanes.size && !options.user)
      throw new InvalidArgumentError('bad_options', 'name sessions, or ask for the feed of the user');
    const target = { path: '/api/stream', what: 'the stream of many sessions', resume: () => this.#resume() };
    this.#connections = new Connections(transport, target, options);
  }

  /** Ends when it is aborted or left, or when every session was refused. */
  async *items(): AsyncGenerator<MultiplexItem, void, undefined> {
    for await (const frame of this.#connections.frames()) {
      const item = this.#itemOf(frame);
      if (item) yield item;
      if (!this.#lanes.size && !this.options.user) return;
    }
  }

  #resume() {
    const { user, deltas } = this.options;
    const sessions = [...this.#lanes].map(([id, { seq }]) => `${id}:${seq}`).join(',');
    return {
      query: { sessions: sessions || undefined, user: user || undefined, deltas: deltas === false ? 0 : undefined },
    };
  }

  #itemOf({ name = '', data }: Frame): MultiplexItem | undefined {
    const wire = parseFrame(data);
    if (name === 'user') {
      const { session_id: sessionId, ...state } = wire as unknown as SessionStateItem & { session_id: string };
      return { of: 'user', sessionId, state };
    }
    const lane = this.#lanes.get(name);
    if (!lane) return undefined;
    if (wire.type === 'error') {
      this.#lanes.delete(name);
      return { of: 'refused', sessionId: name, code: String((wire as { code?: unknown }).code) };
    }
    if (wire.type === 'session_state') {
      if (lane.lastState === data) return undefined;
      lane.lastState = data;
      return { of: 'session', sessionId: name, item: wire as unknown as SessionStateItem };
    }
    if (wire.seq !== undefined) {
      if (wire.seq <= lane.seq) return undefined;
      lane.seq = wire.seq;
    }
    return { of: 'session', sessionId: name, item: eventOf(wire) };
  }
}
