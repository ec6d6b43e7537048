import type { EventInput } from '@margay/contracts';
import type { RejectReason, Rejection } from './command';
import type { Answer } from './document';
import type { Head } from './head';
import type { LogRecord, OpenRecord } from './record';

/** Public event plus the run it belongs to. */
export interface DecidedEvent {
  event: EventInput;
  runId: string | null;
}

export interface Accepted {
  /** The head after the command; `c`, `seq` and `ts` are set when the commit is built. */
  head: Head;
  events: DecidedEvent[];
  records: (LogRecord | OpenRecord)[];
  answer: Answer;
}

export type Decision = Accepted | { reject: Rejection };

/** Rules that a simulator may switch off to show what they prevent; all hold in service. */
export interface DecideRules {
  /** Runner commands demand the session's present epoch. */
  epochEquality: boolean;
  /** The final commit demands that every inbox item has reached the model. */
  finishNeedsInbox: boolean;
  /** A release into waiting demands that nothing it waits for is decided, and that no message came. */
  waitingNeedsOpen: boolean;
  /** A decision puts the run that waits back into the queue. */
  decisionRequeues: boolean;
  /** A run that kills its owners is parked in the end. */
  poisonParks: boolean;
  /** A run starts only on the head that it was looked at with, as far as it asks for that. */
  startsAsSeen: boolean;
  /** Nothing follows the end of a session. */
  terminationIsFinal: boolean;
  /** Times rise within a session whatever the clocks say. */
  timesRise: boolean;
}

export const ALL_DECIDE_RULES: DecideRules = {
  epochEquality: true,
  finishNeedsInbox: true,
  waitingNeedsOpen: true,
  decisionRequeues: true,
  poisonParks: true,
  startsAsSeen: true,
  terminationIsFinal: true,
  timesRise: true,
};

export function isRejected(decision: Decision): decision is { reject: Rejection } {
  return 'reject' in decision;
}

export function reject(reason: RejectReason, message: string): { reject: Rejection } {
  return { reject: { reason, message } };
}
