import { FailedPreconditionError } from '@margay/errors';
import { CommitStore, commitKey, type CommitDocument, type Effect } from '@margay/log';
import type { Collection, Filter, FindOptions } from 'mongodb';
import { isDuplicateKey } from '@margay/platform';
import { WriteBatch } from '../store/write-batch';
import { COMMIT_VERSION, fromStored, numberOf, toStored, type StoredCommit } from './commit.mapper';

interface SessionBound {
  _id: string;
  c: number;
}

/** Sees to it that blobs outlive the commits that refer to them. */
export interface BlobKeeper {
  /** Notes that these are in use. @returns those that do not exist */
  keep(tenantId: string, ids: readonly string[]): Promise<string[]>;
}

/** How long a linearizable read may wait for a majority. */
const LINEARIZABLE_MAX_MS = 5_000;
const PAGE = 200;

/** The session log in the collection `commits`; see docs/protocol.md §1. */
export class MongoCommitStore extends CommitStore {
  private readonly marks: WriteBatch<StoredCommit>;

  constructor(
    private readonly commits: Collection<StoredCommit>,
    private readonly sessions: Collection<SessionBound>,
    private readonly blobs?: BlobKeeper,
  ) {
    super();
    this.marks = new WriteBatch(commits);
  }

  async createIndexes(): Promise<void> {
    await this.commits.createIndex({ sessionId: 1, commitIds: 1 }, { unique: true, name: 'commitIds_v1' });
    await this.commits.createIndex({ sessionId: 1, ts0: 1 }, { name: 'ts0_v1' });
    await this.commits.createIndex({ effectsDueAt: 1 }, { sparse: true, name: 'effectsDueAt_v1' });
    await this.commits.createIndex({ blobs: 1 }, { sparse: true, name: 'blobs_v1' });
  }

  async insert(document: CommitDocument): Promise<'inserted' | 'exists'> {
    const stored = toStored(document);
    try {
      if (stored.blobs && !(await this.hasBlobs(document, stored.blobs))) return 'exists';
      await this.commits.insertOne(stored);
      return 'inserted';
    } catch (error) {
      if (isDuplicateKey(error)) return 'exists';
      throw error;
    }
  }

  async findByCommitId(
    sessionId: string,
    commitId: string,
    options: { linearizable?: boolean } = {},
  ): Promise<CommitDocument | undefined> {
    return documentOf(await this.commits.findOne({ sessionId, commitIds: commitId }, readConcernOf(options)));
  }

  async readNumber(
    sessionId: string,
    c: number,
    options: { linearizable?: boolean } = {},
  ): Promise<CommitDocument | undefined> {
    return documentOf(await this.commits.findOne({ _id: commitKey(sessionId, c) }, readConcernOf(options)));
  }

  async *range(sessionId: string, from: number, to = 9_999_999_999): AsyncIterable<CommitDocument> {
    const filter: Filter<StoredCommit> = { _id: { $gte: commitKey(sessionId, from), $lte: commitKey(sessionId, to) } };
    let expected = Math.max(1, from);
    for await (const stored of this.commits.find(filter, readConcernOf({})).sort({ _id: 1 }).batchSize(PAGE)) {
      // A page that skips a number was read while it was being written: what follows is for the next reader.
      if (numberOf(stored._id) !== expected) return;
      expected += 1;
      yield fromStored(stored);
    }
  }

  async findNumberByTs(sessionId: string, ts: number): Promise<number> {
    const found = await this.commits
      .find({ sessionId, ts0: { $lte: ts } }, readConcernOf({}))
      .sort({ ts0: -1 })
      .limit(1)
      .project<{ _id: string }>({ _id: 1 })
      .next();
    return found ? numberOf(found._id) : 0;
  }

  async lowerBound(sessionId: string): Promise<number> {
    const row = await this.sessions.findOne({ _id: sessionId }, { projection: { c: 1 } });
    return row?.c ?? 0;
  }

  /** Which of these (session, number) pairs exist; at most 1,000. */
  async existing(keys: { sessionId: string; c: number }[]): Promise<string[]> {
    const ids = keys.map(({ sessionId, c }) => commitKey(sessionId, c));
    const found = this.commits
      .find({ _id: { $in: ids } }, readConcernOf({}))
      .project<{ sessionId: string }>({ sessionId: 1 });
    return (await found.toArray()).map(({ sessionId }) => sessionId);
  }

  /** Commits whose effects were due before this time, oldest first; those that only a newer Margay can read are its own. */
  async overdue(beforeMs: number, limit: number): Promise<CommitDocument[]> {
    const found = this.commits
      .find({ effectsDueAt: { $lte: beforeMs }, v: COMMIT_VERSION }, readConcernOf({}))
      .sort({ effectsDueAt: 1 })
      .limit(limit);
    return (await found.toArray()).map(fromStored);
  }

  /** Whether any commit of this tenant, or of one of its sessions, refers to a blob. */
  async refersTo(tenantId: string, blobId: string, sessionId?: string): Promise<boolean> {
    const options = { ...readConcernOf({}), projection: { _id: 1 } };
    return (
      (await this.commits.findOne(
        { blobs: blobId, tenantId, ...(sessionId === undefined ? {} : { sessionId }) },
        options,
      )) !== null
    );
  }

  /** Ids of sessions that have commits, in their order, behind this one; each costs one look into the index. */
  async sessionsAfter(sessionId: string, limit: number): Promise<string[]> {
    const found: string[] = [];
    let last = sessionId;
    while (found.length < limit) {
      // A slash is what follows the dot behind a session's id.
      const next = await this.commits
        .find({ _id: { $gt: last === '' ? '' : `${last}/` } }, readConcernOf({}))
        .sort({ _id: 1 })
        .limit(1)
        .project<{ _id: string }>({ _id: 1 })
        .next();
      if (!next) break;
      last = next._id.slice(0, next._id.lastIndexOf('.'));
      found.push(last);
    }
    return found;
  }

  /** Commits of a session as they are stored, whatever is wrong with them, in the order of their numbers. */
  stored(sessionId: string): AsyncIterable<StoredCommit> {
    return this.commits
      .find({ _id: { $gt: `${sessionId}.`, $lt: `${sessionId}/` } }, readConcernOf({}))
      .sort({ _id: 1 })
      .batchSize(PAGE);
  }

  /** One commit as it is stored, by a linearizable read. */
  async storedNumber(sessionId: string, c: number): Promise<StoredCommit | undefined> {
    const key = { _id: commitKey(sessionId, c) };
    return (await this.commits.findOne(key, readConcernOf({ linearizable: true }))) ?? undefined;
  }

  /** Commits of a session that owe an effect of this kind, applied or not, in the order of their numbers. */
  async *withEffect(sessionId: string, kind: Effect['kind']): AsyncIterable<CommitDocument> {
    const filter: Filter<StoredCommit> = {
      _id: { $gt: `${sessionId}.`, $lt: `${sessionId}/` },
      'effects.kind': kind,
    };
    for await (const stored of this.commits.find(filter, readConcernOf({})).sort({ _id: 1 })) yield fromStored(stored);
  }

  /** Removes a log that never became a session. @returns whether something may be left */
  async removeSome(sessionId: string): Promise<boolean> {
    const ids = await this.commits
      .find({ _id: { $gt: `${sessionId}.`, $lt: `${sessionId}/` } })
      .sort({ _id: 1 })
      .limit(PAGE)
      .project<{ _id: string }>({ _id: 1 })
      .toArray();
    if (ids.length === 0) return false;
    const operations = ids.map(({ _id }) => ({ deleteOne: { filter: { _id } } }));
    await this.commits.bulkWrite(operations, { ordered: false });
    return true;
  }

  clearEffectsMark(id: string): Promise<void> {
    return this.marks.add(id, 0, { updateOne: { filter: { _id: id }, update: { $unset: { effectsDueAt: 1 } } } });
  }

  /** A mark that was cleared meanwhile stays cleared. */
  async postponeEffects(id: string, untilMs: number): Promise<void> {
    await this.commits.updateOne({ _id: id, effectsDueAt: { $lt: untilMs } }, { $set: { effectsDueAt: untilMs } });
  }

  /**
   * False: another commit has this number, whatever became of the blobs.
   * @throws FailedPreconditionError `blob_lost` where a blob was removed that this commit refers to: it came a day too late
   */
  private async hasBlobs({ sessionId, tenantId, c }: CommitDocument, ids: string[]): Promise<boolean> {
    const missing = (await this.blobs?.keep(tenantId, ids)) ?? [];
    if (missing.length === 0) return true;
    if (await this.readNumber(sessionId, c)) return false;
    throw new FailedPreconditionError(
      'blob_lost',
      `blob ${missing[0]} of commit ${c} of session ${sessionId} does not exist; put it again and send the commit again`,
    );
  }
}

function documentOf(stored: StoredCommit | null): CommitDocument | undefined {
  return stored ? fromStored(stored) : undefined;
}

/** Never what a fail-over may still take back: a successor of such a commit would stand on nothing. */
function readConcernOf({ linearizable }: { linearizable?: boolean }): FindOptions {
  return linearizable
    ? { readConcern: { level: 'linearizable' }, maxTimeMS: LINEARIZABLE_MAX_MS }
    : { readConcern: { level: 'majority' } };
}
