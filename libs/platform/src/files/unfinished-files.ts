import type { Collection, Db, ObjectId } from 'mongodb';
import { translateStoreError } from '../mongo/mongo-errors';
import type { ObjectStore } from './object-store';

/** Whatever takes longer was left. */
const DAY_MS = 24 * 3_600_000;
const BATCH = 50;

interface UnfinishedFile {
  _id: ObjectId;
  at: Date;
  /** Where its bytes are, if not in pieces beside it. */
  objectKey?: string;
}

/**
 * Files whose bytes are being written or removed. The file by which anybody finds them comes last and goes first: what a
 * process leaves that is killed in between is known by nothing but this.
 */
export class UnfinishedFiles {
  private readonly known: Collection<UnfinishedFile>;
  private readonly files: Collection<{ _id: ObjectId; objectKey?: string }>;
  private readonly chunks: Collection<{ files_id: ObjectId }>;

  constructor(
    db: Db,
    bucket: string,
    private readonly objects: ObjectStore | undefined,
  ) {
    this.known = db.collection(`${bucket}.unfinished`);
    this.files = db.collection(`${bucket}.files`);
    this.chunks = db.collection(`${bucket}.chunks`);
  }

  /** Before its first byte comes, or its file goes. */
  async begin({ _id, objectKey }: Pick<UnfinishedFile, '_id' | 'objectKey'>): Promise<void> {
    const set = { at: new Date(), ...(objectKey !== undefined && { objectKey }) };
    await this.known.updateOne({ _id }, { $set: set }, { upsert: true }).catch(rethrow);
  }

  /** It is a file now, or nothing of it is left. */
  async end(_id: ObjectId): Promise<void> {
    await this.known.deleteOne({ _id }).catch(rethrow);
  }

  /** Of objects only where they are reached. @returns how many were left */
  async collect(nowMs = Date.now()): Promise<number> {
    const old = { at: { $lt: new Date(nowMs - DAY_MS) }, ...(!this.objects && { objectKey: { $exists: false } }) };
    const left = await this.known.find(old).limit(BATCH).toArray().catch(rethrow);
    for (const { _id, objectKey } of left) {
      const file = await this.files.findOne({ _id }).catch(rethrow);
      if (!file) await this.chunks.deleteMany({ files_id: _id }).catch(rethrow);
      if (objectKey !== undefined && file?.objectKey !== objectKey) await this.objects?.abandon(objectKey);
      await this.end(_id);
    }
    return left.length;
  }
}

function rethrow(error: unknown): never {
  throw translateStoreError(error);
}
