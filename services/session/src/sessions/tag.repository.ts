import { UnavailableError } from '@margay/errors';
import type { CreateCommand } from '@margay/log';
import type { Collection } from 'mongodb';
import { isDuplicateKey } from '@margay/platform';

/** Whoever reserves a tag has so long to make its session; then the janitor looks after it. */
const HALF_MADE_AFTER_MS = 60_000;

/** A tag points at one session; it holds that session's first command until commit 1 surely exists. */
export interface TagRow {
  /** `<tenant>/<tag>`. */
  _id: string;
  tenantId: string;
  sessionId: string;
  /** Empty for a fork, whose first commit is no command. */
  commandJson: string;
  /** From then on the janitor sees to it that the session exists; absent once it is known to. */
  checkAt?: Date;
  /** The session is a fork that is being made: nobody may find it by its tag. */
  isPending?: true;
}

/** The collection `tags`. */
export class TagRepository {
  constructor(private readonly rows: Collection<TagRow>) {}

  async createIndexes(): Promise<void> {
    await this.rows.createIndex({ checkAt: 1 }, { sparse: true, name: 'checkAt_v1' });
  }

  async find(tenantId: string, tag: string): Promise<TagRow | undefined> {
    const row = await this.rows.findOne({ _id: keyOf(tenantId, tag) });
    return row && !row.isPending ? row : undefined;
  }

  /**
   * Reserves a tag for a new session; the loser of a race gets the winner's, whose commit 1 it has to finish.
   * @throws UnavailableError `tag_busy` while a fork with this tag is being made
   */
  async reserve(tenantId: string, tag: string, sessionId: string, command: CreateCommand): Promise<TagRow> {
    const row = { _id: keyOf(tenantId, tag), tenantId, sessionId, commandJson: JSON.stringify(command) };
    const holder = await this.insert({ ...row, checkAt: checkAt() });
    if (holder.isPending) throw new UnavailableError('tag_busy', `a fork tagged '${tag}' is being made; try again`);
    return holder;
  }

  /** Reserves a tag for a fork, hidden until `settle`. @returns the row that has the tag, which may be another's */
  reserveForFork(tenantId: string, tag: string, sessionId: string): Promise<TagRow> {
    const row = { _id: keyOf(tenantId, tag), tenantId, sessionId, commandJson: '' };
    return this.insert({ ...row, checkAt: checkAt(), isPending: true });
  }

  /** Tags whose sessions may not exist, although it is time; oldest first. */
  halfMade(nowMs: number, limit: number): Promise<TagRow[]> {
    return this.rows
      .find({ checkAt: { $lte: new Date(nowMs) } })
      .sort({ checkAt: 1 })
      .limit(limit)
      .toArray();
  }

  /** The session of this tag exists. */
  async settle({ _id, sessionId }: Pick<TagRow, '_id' | 'sessionId'>): Promise<void> {
    await this.rows.updateOne({ _id, sessionId }, { $unset: { checkAt: 1, isPending: 1 } });
  }

  async settleFork(tenantId: string, tag: string, sessionId: string): Promise<void> {
    await this.settle({ _id: keyOf(tenantId, tag), sessionId });
  }

  /** Looked at again later. */
  async postpone({ _id, sessionId }: TagRow): Promise<void> {
    await this.rows.updateOne({ _id, sessionId }, { $set: { checkAt: checkAt() } });
  }

  /** The session will never exist: the tag is free again. */
  async free({ _id, sessionId }: TagRow): Promise<void> {
    await this.rows.deleteOne({ _id, sessionId });
  }

  private async insert(row: TagRow): Promise<TagRow> {
    for (;;) {
      try {
        await this.rows.insertOne(row);
        return row;
      } catch (error) {
        if (!isDuplicateKey(error)) throw error;
      }
      const holder = await this.rows.findOne({ _id: row._id });
      // Freed in between, if it is gone.
      if (holder) return holder;
    }
  }
}

function keyOf(tenantId: string, tag: string): string {
  return `${tenantId}/${tag}`;
}

function checkAt(): Date {
  return new Date(Date.now() + HALF_MADE_AFTER_MS);
}
