import type { CreateCommand } from '@margay/log';
import type { Collection } from 'mongodb';
import { isDuplicateKey } from '../store/mongo-errors';

/** A tag points at one session; it holds that session's first command until commit 1 surely exists. */
export interface TagRow {
  /** `<tenant>/<tag>`. */
  _id: string;
  tenantId: string;
  sessionId: string;
  commandJson: string;
}

/** The collection `tags`. */
export class TagRepository {
  constructor(private readonly rows: Collection<TagRow>) {}

  async find(tenantId: string, tag: string): Promise<TagRow | undefined> {
    return (await this.rows.findOne({ _id: keyOf(tenantId, tag) })) ?? undefined;
  }

  /**
   * Reserves a tag for a new session; the loser of a race gets the winner's, whose commit 1 it has to finish.
   */
  async reserve(tenantId: string, tag: string, sessionId: string, command: CreateCommand): Promise<TagRow> {
    const row: TagRow = { _id: keyOf(tenantId, tag), tenantId, sessionId, commandJson: JSON.stringify(command) };
    try {
      await this.rows.insertOne(row);
      return row;
    } catch (error) {
      if (!isDuplicateKey(error)) throw error;
      return (await this.rows.findOne({ _id: row._id })) ?? this.reserve(tenantId, tag, sessionId, command);
    }
  }
}

function keyOf(tenantId: string, tag: string): string {
  return `${tenantId}/${tag}`;
}
