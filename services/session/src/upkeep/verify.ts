import { commitKey, LogCheck, type LogFault } from '@margay/log';
import { fromStored, numberOf, type StoredCommit } from '../commits/commit.mapper';
import { blobsOf } from '../commits/blob-references';
import type { MongoCommitStore } from '../commits/mongo-commit-store';

export interface Verification {
  sessionId: string;
  /** Commits that are right, from the first on. */
  commits: number;
  /** Hash of the last of them. */
  headHash: string;
  /** The first that is wrong or missing. */
  fault?: LogFault;
}

/**
 * Checks the log of a session as it lies in the store, from its first commit to its last. A commit that is missing in a
 * page which was read while others were being written is looked for by its number before it counts as missing.
 */
export async function verifySession(store: MongoCommitStore, sessionId: string): Promise<Verification> {
  const check = new LogCheck(sessionId);
  // Before the log is read: it has reached this number, if the row is right.
  const leastC = await store.lowerBound(sessionId);
  const fault = (await firstFault(store, check, sessionId)) ?? (await missingEnd(store, check, sessionId, leastC));
  return { sessionId, commits: check.commits, headHash: check.headHash, ...(fault ? { fault } : {}) };
}

async function firstFault(store: MongoCommitStore, check: LogCheck, sessionId: string): Promise<LogFault | undefined> {
  for await (const stored of store.stored(sessionId)) {
    for (let c = check.commits + 1; c < numberOf(stored._id); c++) {
      const late = await store.storedNumber(sessionId, c);
      const fault = late ? checkStored(check, late) : { c, problem: `commit ${c} is missing` };
      if (fault) return fault;
    }
    const fault = checkStored(check, stored);
    if (fault) return fault;
  }
  return undefined;
}

/** Commits that are gone from the end leave no gap: only the session's row remembers them. */
async function missingEnd(
  store: MongoCommitStore,
  check: LogCheck,
  sessionId: string,
  leastC: number,
): Promise<LogFault | undefined> {
  if (leastC <= check.commits || !Number.isSafeInteger(leastC + 1)) return undefined;
  const c = check.commits + 1;
  if (await store.storedNumber(sessionId, c)) return undefined;
  return { c, problem: `the log ends before commit ${c}, but the session's row has seen commit ${leastC}` };
}

/** The stored form first: what can't be read, or names other blobs than its texts, was not written by us. */
function checkStored(check: LogCheck, stored: StoredCommit): LogFault | undefined {
  const c = check.commits + 1;
  try {
    const document = fromStored(stored);
    if (stored._id !== commitKey(stored.sessionId, document.c)) return { c, problem: `its key ${stored._id} is none` };
    const fault = check.next(document);
    if (fault) return fault;
    const isSameBlobs = stored.blobs === undefined || String(stored.blobs) === String(blobsOf(document));
    return isSameBlobs ? undefined : { c, problem: 'it names other blobs than its texts refer to' };
  } catch (error) {
    return { c, problem: `it can't be read: ${error instanceof Error ? error.message : String(error)}` };
  }
}
