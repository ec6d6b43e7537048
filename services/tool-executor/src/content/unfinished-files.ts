import { translateStoreError } from '@margay/platform';
import type { Collection, Db, ObjectId } from 'mongodb';

/** Whatever takes longer was left. */
const DAY_MS = 24 * 3_600_000;
const BATCH = 50;

/**
 * Files of a GridFS bucket that are being written or removed. The file by which anybody finds their bytes comes last and goes
 * first: what a process leaves that is killed in between is known by nothing but this.
 */
export class UnfinishedFiles {
  private readonly known: Collection<{ _id: ObjectId; at: Date }>;
  private readonly files: Collection<{ _id: ObjectId }>;
  private readonly chunks: Collection<{ files_id: ObjectId }>;

  constructor(db: Db, bucket: string) {
    this.known = db.collection(`${bucket}.unfinished`);
    this.files = db.collection(`${bucket}.files`);
    this.chunks = db.collection(`${bucket}.chunks`);
  }

  /** Before its first byte comes, or its file goes. */
  async begin(_id: ObjectId): Promise<void> {
    await this.known.updateOne({ _id }, { $set: { at: new Date() } }, { upsert: true }).catch(rethrow);
  }

  /** It is a file now, or nothing of it is left. */
  async end(_id: ObjectId): Promise<void> {
    await this.known.deleteOne({ _id }).catch(rethrow);
  }

  /** @returns how many were left */
  async collect(nowMs = Date.now()): Promise<number> {
    const old = { at: { $lt: new Date(nowMs - DAY_MS) } };
    const left = await this.known.find(old).limit(BATCH).toArray().catch(rethrow);
    for (const { _id } of left) {
      const isFile = (await this.files.findOne({ _id }).catch(rethrow)) !== null;
      if (!isFile) await this.chunks.deleteMany({ files_id: _id }).catch(rethrow);
      await this.end(_id);
    }
    return left.length;
  }
}

function rethrow(error: unknown): never {
  throw translateStoreError(error);
}
