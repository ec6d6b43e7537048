import { isMargayError } from '@margay/errors';
import type { CommitDocument } from './document';

/**
 * Where commits lie. Implementations promise: `insert` is atomic and durable on return, at most one document per `_id`
 * and per (sessionId, commitId) ever exists, no read shows a document that can still be lost, and a linearizable read
 * sees every insert acknowledged before it began. Other reads may be behind. Every method may throw: then its outcome is
 * unknown, unless it says that nothing was sent (`isUnsent`). See docs/protocol.md §1.
 */
export abstract class CommitStore {
  /** `exists`: a document with this `_id`, or with one of its commit ids in this session, is there already. */
  abstract insert(document: CommitDocument): Promise<'inserted' | 'exists'>;
  abstract findByCommitId(
    sessionId: string,
    commitId: string,
    options?: { linearizable?: boolean },
  ): Promise<CommitDocument | undefined>;
  abstract readNumber(
    sessionId: string,
    c: number,
    options?: { linearizable?: boolean },
  ): Promise<CommitDocument | undefined>;
  /** Documents with numbers ≥ `from` (and ≤ `to`), ascending and without a gap: it ends before the first one missing. */
  abstract range(sessionId: string, from: number, to?: number): AsyncIterable<CommitDocument>;
  /** Number of the last commit with `ts0` ≤ this time; 0 if there is none. */
  abstract findNumberByTs(sessionId: string, ts: number): Promise<number>;
  /** A number that the log is known to have reached, as cheaply as it is known; 0 if nothing is. */
  abstract lowerBound(sessionId: string): Promise<number>;
}

/** Whether an insert failed before anything was sent, as it would each time: the document refers to a blob that is gone. */
export function isUnsent(error: unknown): boolean {
  return isMargayError(error) && error.reason === 'blob_lost';
}
