import type { ServerResponse } from 'node:http';

type Json = Record<string, unknown>;

/** Where and how the next stream answers break, for tests of resumption. */
export interface StreamCut {
  /** Bytes of the body that still arrive. */
  afterBytes: number;
  /** `destroy` breaks the connection, `end` closes it cleanly. */
  how: 'destroy' | 'end';
}

/** One open SSE answer. */
class Listener {
  #sent = 0;

  constructor(
    private readonly response: ServerResponse,
    private readonly cut: StreamCut | undefined,
  ) {}

  send(text: string): void {
    if (this.response.destroyed || this.response.writableEnded) return;
    const bytes = Buffer.from(text);
    const room = this.cut ? this.cut.afterBytes - this.#sent : Infinity;
    this.#sent += bytes.length;
    if (bytes.length < room) return void this.response.write(bytes);
    const last = bytes.subarray(0, room);
    if (this.cut?.how === 'end') this.response.end(last);
    else this.response.write(last, () => this.response.destroy());
  }

  end(): void {
    this.response.end();
  }

  destroy(): void {
    this.response.destroy();
  }
}

/** A session of the fake gateway: its log as frame texts, its state, its listeners. */
export class FakeSession {
  /** The stored events' exact texts, in order; index + 1 is the event's `seq`. */
  readonly frames: string[] = [];
  readonly state: Json & { running: boolean };
  readonly tags: string[] = [];
  /** What the next streams do; the first entry goes to the next one. */
  readonly cuts: StreamCut[] = [];
  runs = 0;
  currentRun: string | undefined;
  readonly #listeners = new Map<Listener, boolean>();

  constructor(readonly id: string) {
    this.state = {
      running: false,
      status: 'idle',
      done_reason: null,
      title: `Session ${id.slice(0, 8)}`,
      recoverable: false,
      terminated: false,
      terminated_at: null,
    };
  }

  /** Stores an event and sends it to all listeners. */
  append(type: string, payload: Json): this {
    const seq = this.frames.length + 1;
    const ts = `2026-08-03T10:15:42.${String(seq).padStart(6, '0')}+00:00`;
    const run = this.currentRun === undefined ? {} : { run_id: this.currentRun };
    const text = JSON.stringify({ ts, type, payload, seq, ...run });
    this.frames.push(text);
    for (const [listener, ids] of this.#listeners) listener.send(frameText(text, ids ? seq : undefined));
    return this;
  }

  /** Sends a fragment of the root's text to all listeners; it is not stored. */
  delta(text: string, offset: number, step = 1): this {
    const payload = { text, agent_id: 'root', depth: 0, step, offset };
    const ts = (JSON.parse(this.frames.at(-1) ?? '{"ts":""}') as { ts: string }).ts;
    return this.#broadcast(JSON.stringify({ ts, type: 'agent_message_delta', payload, run_id: this.currentRun }));
  }

  /** Opens a run: `run_accepted`, `user`, and state `running`. */
  begin(text: string): string {
    this.runs += 1;
    this.currentRun = `${this.id}:r${this.runs}`;
    Object.assign(this.state, { running: true, status: 'running', done_reason: '' });
    this.append('run_accepted', { session_id: this.id, run_id: this.currentRun, ts: '' }).append('user', { text });
    return this.currentRun;
  }

  /** Closes the run with its answer, then ends every stream as the gateway does. */
  finish(text: string, completion: Json = {}, status = 'completed'): this {
    const payload = { done: true, done_reason: 'completed', task_result: text, ...completion };
    this.append('assistant', { text }).append('completion', payload);
    this.currentRun = undefined;
    Object.assign(this.state, { running: false, status, done_reason: payload.done_reason });
    return this.endStreams();
  }

  /** Changes the state and tells the listeners. */
  setState(change: Json): this {
    Object.assign(this.state, change);
    return this.#broadcast(this.#stateText());
  }

  /** Replays what is beyond the cursor, then keeps the answer open while a run is active. */
  listen(response: ServerResponse, from: { seq: number; ids: boolean }): void {
    const listener = new Listener(response, this.cuts.shift());
    for (const [index, text] of this.frames.entries())
      if (index + 1 > from.seq) listener.send(frameText(text, from.ids ? index + 1 : undefined));
    listener.send(frameText(this.#stateText()));
    if (!this.state.running) return this.#close(listener);
    this.#listeners.set(listener, from.ids);
    response.on('close', () => this.#listeners.delete(listener));
  }

  get listeners(): number {
    return this.#listeners.size;
  }

  /** Resolves once somebody streams the session: deltas reach only those who listen. */
  async listened(): Promise<this> {
    while (!this.#listeners.size) await new Promise((resolve) => setImmediate(resolve));
    return this;
  }

  /** Breaks every open connection off. */
  dropStreams(): this {
    for (const listener of this.#listeners.keys()) listener.destroy();
    return this;
  }

  endStreams(): this {
    for (const listener of this.#listeners.keys()) this.#close(listener);
    this.#listeners.clear();
    return this;
  }

  #close(listener: Listener): void {
    listener.send(frameText(this.#stateText()));
    listener.send(frameText('{"type":"stream_end"}'));
    listener.end();
  }

  #stateText(): string {
    return JSON.stringify({ type: 'session_state', ...this.state });
  }

  #broadcast(text: string): this {
    for (const listener of this.#listeners.keys()) listener.send(frameText(text));
    return this;
  }
}

const frameText = (data: string, id?: number): string => `${id === undefined ? '' : `id: ${id}\n`}data: ${data}\n\n`;
