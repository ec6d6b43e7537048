import { parseMicros } from '@margay/contracts';
import { InvalidArgumentError } from '@margay/errors';
import type { ReadFrom } from './commit-reader';
import type { Frame } from './feed-commit';

/** Where a reader wants to begin. */
export interface Cursor {
  from: ReadFrom;
  /** Frames of the first commits that lie before the cursor are left out. */
  includes: (frame: Frame) => boolean;
}

const EVERYTHING: Cursor = { from: { $case: 'afterCommit', value: 0 }, includes: () => true };

/** In the year 2255: later times mean the same, that nothing stored is wanted. */
const LAST_MICROS = Number.MAX_SAFE_INTEGER - 1;

/** Whole microseconds of a time parameter, `after` or `before`; undefined where it is absent or empty. */
export function parseTime(name: string, text: string | undefined): number | undefined {
  if (text === undefined || text.trim() === '') return undefined;
  const micros = parseMicros(text);
  if (micros !== undefined && Number.isFinite(micros)) return Math.min(Math.max(micros, 0), LAST_MICROS);
  throw new InvalidArgumentError(
    'bad_request',
    `Invalid input: '${name}' must be an ISO-8601 timestamp or epoch seconds`,
  );
}

/** From the event with this time on, inclusive. */
export function atOrAfter(micros: number): Cursor {
  return { from: { $case: 'atOrAfterTs', value: micros }, includes: ({ ts }) => ts >= micros };
}

/** Behind the event with this number. That event is read too: its time stamps the fragments that follow it. */
export function afterSeq(seq: number): Cursor {
  return { from: { $case: 'afterSeq', value: Math.max(0, seq - 1) }, includes: (frame) => frame.seq > seq };
}

/**
 * `Last-Event-ID` (exclusive) wins over `after` (inclusive). An id of another store generation means all from the start.
 * @param generation of the store
 */
export function streamCursor(lastEventId: string | undefined, after: string | undefined, generation: number): Cursor {
  if (lastEventId === undefined) {
    const micros = parseTime('after', after);
    return micros === undefined ? EVERYTHING : atOrAfter(micros);
  }
  const [, idGeneration = '0', seq = '0'] = /^(?:(\d{1,9})\.)?(\d{1,15})$/.exec(lastEventId.trim()) ?? [];
  return Number(idGeneration) !== generation || Number(seq) === 0 ? EVERYTHING : afterSeq(Number(seq));
}
