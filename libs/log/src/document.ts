import type { Head } from './head';

/** An accepted command and what its sender was told. A repeat with the same id gets the same answer. */
export interface StoredCommand {
  commitId: string;
  /** SHA-256 of the canonical command body: another body under the same id is refused. */
  bodyHash: string;
  answer: Answer;
}

/** What the sender of an accepted command is told. */
export type Answer = Record<string, string | number | boolean | null>;

export interface StoredFrame {
  seq: number;
  /** Microseconds since the epoch. */
  ts: number;
  /** The bytes of the public event, serialised once and served live and in replay. */
  frame: string;
}

/** A write owed to another document, applied after the commit and again until it is known to have been applied. */
export type Effect =
  /** Project the head onto the session's row. */
  | { kind: 'session' }
  /** Project one run onto its queue row. */
  | { kind: 'run'; runId: string; state: RunRowState; epoch: number; owner: string | null }
  /** No call of a lower epoch may run in the session's sandbox from here on; `kill` ends what runs. */
  | { kind: 'fence'; runId: string; epoch: number; kill: boolean }
  /** A sandbox that the session got at this epoch or before serves a workspace that it has left. */
  | { kind: 'leave'; epoch: number }
  /** Note where a question lies: its `user_question` event has this time. */
  | { kind: 'question'; callId: string; ts: number };

export type RunRowState = 'queued' | 'running' | 'waiting' | 'done';

/**
 * One append to a session. Immutable but for `effectsDueAt`.
 * `_id` is `<sessionId>.<number as ten digits>`; its uniqueness is what the safety of a session rests on.
 */
export interface CommitDocument {
  _id: string;
  v: 1;
  tenantId: string;
  sessionId: string;
  /** Commit number, dense from 1. */
  c: number;
  commitIds: string[];
  commands: StoredCommand[];
  /** Public events. */
  events: StoredFrame[];
  /** Private records as JSON texts; long texts that equal a field of an event of this commit are references to it. */
  records: string[];
  /** State after this commit. */
  head: Head;
  effects: Effect[];
  /** Milliseconds since the epoch from which the janitor applies the effects; null once they are known to be applied. */
  effectsDueAt: number | null;
  /** Time of the first event, or of the commit where it has none; microseconds. */
  ts0: number;
  /** SHA-256 over the previous commit's hash and this body without `hash` and `effectsDueAt`. */
  hash: string;
}

/** The newest known end of a log. */
export interface Tip {
  head: Head;
  hash: string;
}

export function commitKey(sessionId: string, c: number): string {
  return `${sessionId}.${String(c).padStart(10, '0')}`;
}

export function tipOf(document: CommitDocument): Tip {
  return { head: document.head, hash: document.hash };
}
