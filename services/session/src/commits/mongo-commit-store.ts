import { CommitStore, commitKey, type CommitDocument } from '@margay/log';
import type { Collection, Filter, FindOptions } from 'mongodb';
import { isDuplicateKey } from '../store/mongo-errors';
import { WriteBatch } from '../store/write-batch';
import { fromStored, numberOf, toStored, type StoredCommit } from './commit.mapper';

interface SessionBound {
  _id: string;
  c: number;
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
  ) {
    super();
    this.marks = new WriteBatch(commits);
  }

  async createIndexes(): Promise<void> {
    await this.commits.createIndex({ sessionId: 1, commitIds: 1 }, { unique: true, name: 'commitIds_v1' });
    await this.commits.createIndex({ sessionId: 1, ts0: 1 }, { name: 'ts0_v1' });
    await this.commits.createIndex({ effectsDueAt: 1 }, { sparse: true, name: 'effectsDueAt_v1' });
  }

  async insert(document: CommitDocument): Promise<'inserted' | 'exists'> {
    try {
      await this.commits.insertOne(toStored(document));
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

  /** Commits whose effects were due before this time, oldest first. */
  async overdue(beforeMs: number, limit: number): Promise<CommitDocument[]> {
    const found = this.commits
      .find({ effectsDueAt: { $lte: beforeMs } }, readConcernOf({}))
      .sort({ effectsDueAt: 1 })
      .limit(limit);
    return (await found.toArray()).map(fromStored);
  }

  clearEffectsMark(id: string): Promise<void> {
    return this.marks.add(id, 0, { updateOne: { filter: { _id: id }, update: { $unset: { effectsDueAt: 1 } } } });
  }

  /** A mark that was cleared meanwhile stays cleared. */
  async postponeEffects(id: string, untilMs: number): Promise<void> {
    await this.commits.updateOne({ _id: id, effectsDueAt: { $lt: untilMs } }, { $set: { effectsDueAt: untilMs } });
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
