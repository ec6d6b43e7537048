import type { Rejection } from './command';
import type { Answer } from './document';
import type { Head } from './head';

export type CommitOutcome =
  /**
   * Stored; `head` is the state after the document that holds the command. `replayed`: it was found stored, as a repeat
   * is (or a first one whose acknowledgement was lost).
   */
  | { ok: true; c: number; answer: Answer; head: Head; replayed: boolean }
  /** Refused; `head` is the confirmed end of the log on which that was decided. */
  | { ok: false; rejection: Rejection; head: Head };
