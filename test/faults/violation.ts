/** What can be wrong. */
export const VIOLATION_KINDS = [
  /** A run without an end. */
  'stuck',
  /** A query that was accepted, or an event that a client did not get. */
  'lost',
  'repeated',
  'reordered',
  /** What a client got, or what is replayed, is not what is stored. */
  'altered',
  /** Commit numbers or seqs with gaps, times that do not rise. */
  'numbers',
  /** A commit whose hash does not follow from the one before. */
  'chain',
  /** A keyed effect that did not happen exactly once. */
  'keyed',
  /** An unkeyed effect that happened twice, or otherwise than its result says. */
  'unkeyed',
  /** Calls without a result, or results without a call. */
  'pairs',
  /** A run or a stream with another number of ends than one, or one that ended wrongly. */
  'terminal',
  /** A write under an epoch that was not the head's. */
  'fenced',
  /** A row of the queue that does not follow its log. */
  'queue',
  /** The harness itself could not go on. */
  'problem',
] as const;

export type ViolationKind = (typeof VIOLATION_KINDS)[number];

/** A promise that was broken. */
export interface Violation {
  kind: ViolationKind;
  text: string;
}

export const violation = (kind: ViolationKind, text: string): Violation => ({ kind, text });
