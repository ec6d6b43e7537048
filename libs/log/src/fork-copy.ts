import type { CommitDocument, StoredFrame } from './document';
import type { Head } from './head';
import { unpackRecord } from './references';

/** Up to where a session is copied. */
export interface ForkPoint {
  /** Time of the last event that is copied; microseconds. */
  ts: number;
  /** Ranges of seq that are left out. */
  cuts: Head['cuts'];
}

/** An event as its frame spells it. */
interface FrameEvent {
  ts: string;
  type: string;
  payload: Record<string, unknown>;
  seq: number;
  run_id?: string;
}

type PrivateRecord = ReturnType<typeof unpackRecord>;

/** An event of the source on its way into the fork: all but its number stays as it is. */
class CopiedEvent {
  constructor(
    private readonly event: FrameEvent,
    private readonly microseconds: number,
  ) {}

  get payload(): Record<string, unknown> {
    return this.event.payload;
  }

  renumbered(seq: number): StoredFrame {
    // The field keeps its place.
    return { seq, ts: this.microseconds, frame: JSON.stringify({ ...this.event, seq }) };
  }
}

/** What a fork takes of one commit of its source. */
export class CopiedCommit {
  /** Events up to the point, also those that readers skip. */
  readonly seen: FrameEvent[];
  readonly events: CopiedEvent[];
  /** Private records up to the point, whole. */
  readonly records: PrivateRecord[];

  constructor(
    readonly document: CommitDocument,
    point: ForkPoint,
  ) {
    const all = document.events.map(({ frame }) => JSON.parse(frame) as FrameEvent);
    const end = endOf(document.events, all, point.ts);
    this.seen = all.slice(0, end);
    this.events = this.seen
      .map((event, index) => ({ event, ts: document.events[index]?.ts ?? 0 }))
      .filter(({ event: { seq } }) => !point.cuts.some(([from, to]) => seq >= from && seq <= to))
      .map(({ event, ts }) => new CopiedEvent(event, ts));
    const frames = document.events.map(({ frame }) => frame);
    const records = document.records.map((text) => unpackRecord(text, frames));
    const isWhole = end === all.length && document.ts0 <= point.ts;
    this.records = isWhole ? records : recordsUpTo(records, all, end);
  }

  get isEmpty(): boolean {
    return this.events.length + this.records.length === 0;
  }

  get ts0(): number {
    return this.document.ts0;
  }

  /** About as many as it takes in the fork. */
  get chars(): number {
    const { events, records } = this.document;
    return events.reduce((sum, { frame }) => sum + frame.length, 0) + records.join('').length;
  }
}

/** How many events are copied; an answer and the completion behind it are one. */
function endOf(events: readonly StoredFrame[], all: readonly FrameEvent[], ts: number): number {
  let end = events.findIndex((event) => event.ts > ts);
  if (end < 0) end = events.length;
  while (all[end - 1]?.type === 'assistant' && all[end]?.type === 'completion') end += 1;
  return end;
}

/** Of the commit in which the point lies: the records of those events that are copied, and what follows from them. */
function recordsUpTo(records: PrivateRecord[], all: FrameEvent[], end: number): PrivateRecord[] {
  const taken = new Set<number>();
  let isCopied = end > 0;
  return records.filter((record) => {
    const isOwn = eventOf(record);
    const index = isOwn ? all.findIndex((event, at) => !taken.has(at) && isOwn(event)) : -1;
    if (index >= 0) {
      taken.add(index);
      isCopied = index < end;
    }
    return isCopied;
  });
}

/** Tells the event that says publicly what a record says privately; undefined where none does. */
function eventOf(record: PrivateRecord): ((event: FrameEvent) => boolean) | undefined {
  const { kind, runId, callId } = record;
  const isOf = (type: string, field: string, id: unknown) => (event: FrameEvent) =>
    event.type === type && event.payload[field] === id;
  switch (kind) {
    case 'run':
      return isOf('run_accepted', 'run_id', runId);
    case 'user':
      return ({ type, run_id: id }) => type === 'user' && id === runId;
    case 'end':
      return ({ type, run_id: id }) => type === 'assistant' && id === runId;
    case 'cut':
      return ({ type }) => type === 'recovery';
    case 'question':
      return isOf('user_question', 'call_id', callId);
    case 'inbox':
      return record['item'] === 'answer'
        ? isOf('user_question_answered', 'call_id', callId)
        : ({ type }) => type === 'user_steer';
    case 'tool':
      return isOf('tool_result', 'tool_call_id', callId);
    case 'assistant': {
      const [first] = (record['toolCalls'] ?? []) as { callId: string }[];
      return first ? isOf('tool_call', 'tool_call_id', first.callId) : ({ type }) => type === 'llm_call_end';
    }
    default:
      return undefined;
  }
}
