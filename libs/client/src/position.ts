import type { WireEvent } from './events';

/** A place in a session's log; save it from the last handled item and give it as `after`. */
export interface Cursor {
  /** The exact place: streams go on after it. */
  seq?: number;
  /** Used where `seq` is absent; a stream starts with the events of this time. */
  ts?: string;
}

/** The generation in an id `<generation>.<seq>`; the first one's ids are plain numbers. */
const generationOf = (id: string): string => /^(\d+)\./.exec(id)?.[1] ?? '0';

/** How far a stream has come, and so which frames it has already given. */
export class Position {
  #seq: number | undefined;
  #ts: string | undefined;
  #id: string | undefined;
  /** Texts of the events at `#ts`, for servers that number nothing. */
  readonly #texts = new Set<string>();

  constructor(after: Cursor = {}) {
    this.#seq = after.seq;
    this.#ts = after.ts;
  }

  /** What a new connection says: `Last-Event-ID` (exclusive) or `after` (inclusive). */
  resume(): { headers: Record<string, string>; query: Record<string, string> } {
    const id = this.#id ?? this.#seq?.toString();
    if (id !== undefined) return { headers: { 'Last-Event-ID': id }, query: {} };
    return { headers: {}, query: this.#ts === undefined ? {} : { after: this.#ts } };
  }

  /** Moves to a stored event; false for one that was given before. */
  accept(event: WireEvent, text: string, id: string | undefined): boolean {
    if (id !== undefined) this.#noteId(id);
    return event.seq === undefined ? this.#acceptByTime(event.ts, text) : this.#acceptByNumber(event.seq, event.ts);
  }

  #noteId(id: string): void {
    // A restored store is another generation: its server replays from the start, and its numbers begin anew.
    if (this.#id !== undefined && generationOf(id) !== generationOf(this.#id)) this.#seq = undefined;
    this.#id = id;
  }

  #acceptByNumber(seq: number, ts: string): boolean {
    if (this.#seq !== undefined && seq <= this.#seq) return false;
    this.#seq = seq;
    this.#ts = ts;
    return true;
  }

  #acceptByTime(ts: string, text: string): boolean {
    if (this.#ts !== undefined && ts < this.#ts) return false;
    if (ts !== this.#ts) this.#texts.clear();
    if (this.#texts.has(text)) return false;
    this.#texts.add(text);
    this.#ts = ts;
    return true;
  }
}
