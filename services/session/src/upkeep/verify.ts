import { commitKey, LogCheck, type CommitDocument, type LogFault } from '@margay/log';
import { fromStored, numberOf, type StoredCommit } from '../commits/commit.mapper';
import { blobsOf } from '../commits/blob-references';
import type { MongoCommitStore } from '../commits/mongo-commit-store';

export interface VerifyPorts {
  store: Pick<MongoCommitStore, 'lowerBound' | 'stored' | 'storedNumber'>;
  /** Tells what is wrong with a blob. */
  blobs: { faultOf(tenantId: string, id: string, isNamed: boolean): Promise<string | undefined> };
  /** Its abort ends the verification. */
  signal?: AbortSignal;
}

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
 * Checks the log of a session as it lies in the store, from its first commit to its last, with the blobs that it refers
 * to. A commit that is missing in a page which was read while others were being written is looked for by its number before
 * it counts as missing.
 */
export async function verifySession(ports: VerifyPorts, sessionId: string): Promise<Verification> {
  // Before the log is read: it has reached this number, if the row is right.
  const leastC = await ports.store.lowerBound(sessionId);
  return new SessionCheck(ports, sessionId).run(leastC);
}

class SessionCheck {
  private readonly log: LogCheck;
  private readonly knownBlobs = new Set<string>();

  constructor(
    private readonly ports: VerifyPorts,
    private readonly sessionId: string,
  ) {
    this.log = new LogCheck(sessionId);
  }

  async run(leastC: number): Promise<Verification> {
    const { log, sessionId } = this;
    const fault = (await this.firstFault()) ?? (await this.missingEnd(leastC));
    return { sessionId, commits: log.commits, headHash: log.headHash, ...(fault ? { fault } : {}) };
  }

  private async firstFault(): Promise<LogFault | undefined> {
    const { store, signal } = this.ports;
    for await (const stored of store.stored(this.sessionId)) {
      signal?.throwIfAborted();
      for (let c = this.log.commits + 1; c < numberOf(stored._id); c++) {
        const late = await store.storedNumber(this.sessionId, c);
        const fault = late ? await this.next(late) : { c, problem: `commit ${c} is missing` };
        if (fault) return fault;
      }
      const fault = await this.next(stored);
      if (fault) return fault;
    }
    return undefined;
  }

  /** Commits that are gone from the end leave no gap: only the session's row remembers them. */
  private async missingEnd(leastC: number): Promise<LogFault | undefined> {
    if (leastC <= this.log.commits || !Number.isSafeInteger(leastC + 1)) return undefined;
    const c = this.log.commits + 1;
    if (await this.ports.store.storedNumber(this.sessionId, c)) return undefined;
    return { c, problem: `the log ends before commit ${c}, but the session's row has seen commit ${leastC}` };
  }

  private async next(stored: StoredCommit): Promise<LogFault | undefined> {
    const c = this.log.commits + 1;
    const { document, problem } = readable(stored);
    if (!document) return { c, problem };
    const fault = this.log.next(document);
    if (fault) return fault;
    const found = namingProblem(stored, document) ?? (await this.blobProblem(document, stored.blobs !== undefined));
    return found === undefined ? undefined : { c, problem: found };
  }

  private async blobProblem(document: CommitDocument, isNamed: boolean): Promise<string | undefined> {
    for (const id of blobsOf(document)) {
      // A blob is read once, but each of its commits has to name it.
      if (isNamed && this.knownBlobs.has(id)) continue;
      this.ports.signal?.throwIfAborted();
      const problem = await this.ports.blobs.faultOf(document.tenantId, id, isNamed);
      if (problem !== undefined) return problem;
      this.knownBlobs.add(id);
    }
    return undefined;
  }
}

/** What can't be read was not written by us, or by a newer Margay. */
function readable(
  stored: StoredCommit,
): { document: CommitDocument; problem: '' } | { document?: never; problem: string } {
  try {
    const document = fromStored(stored);
    if (stored._id !== commitKey(stored.sessionId, document.c)) return { problem: `its key ${stored._id} is none` };
    return { document, problem: '' };
  } catch (error) {
    return { problem: `it can't be read: ${error instanceof Error ? error.message : String(error)}` };
  }
}

/** Commits of older versions name none. */
function namingProblem({ blobs }: StoredCommit, document: CommitDocument): string | undefined {
  if (blobs === undefined || String(blobs) === String(blobsOf(document))) return undefined;
  return 'it names other blobs than its texts refer to';
}
