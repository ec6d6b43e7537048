import { randomUUID } from 'node:crypto';
import { AlreadyExistsError, NotFoundError } from '@margay/errors';
import { isDuplicateKey, translateStoreError } from '@margay/platform';
import { isObjectMissing, StoredFiles, type ObjectStore } from '@margay/platform/files';
import { MongoGridFSChunkError, type Db } from 'mongodb';
import { ArchiveStore, nameOf, prefixOf, type Archive, type ArchiveOwner, type Chunks } from './archive-store';

const BUCKET = 'archives';
const PIECES_MAX_BYTES = 100 * 1024 ** 2;
const OBJECT_MAX_BYTES = 2 * 1024 ** 3;
const WRITING = 'writing/';
const HOUR_MS = 3_600_000;
const BROKEN_MAX = 50;

/** Archives in GridFS or in a bucket of objects; backups take them with all other collections. */
export class MongoArchiveStore extends ArchiveStore {
  /** Named as nobody's while one is being written. */
  private readonly stored: StoredFiles<Archive>;

  readonly maxBytes: number;

  /** @param maxBytes default 100 MiB in GridFS, 2 GiB in a bucket */
  constructor(db: Db, maxBytes?: number, objects?: ObjectStore) {
    super();
    this.maxBytes = maxBytes ?? (objects ? OBJECT_MAX_BYTES : PIECES_MAX_BYTES);
    this.stored = new StoredFiles(db, BUCKET, { objects });
  }

  private get files() {
    return this.stored.files;
  }

  /** Before anything is written. */
  async createIndexes(): Promise<void> {
    await this.files.createIndex({ filename: 1 }, { name: 'name_v1', unique: true });
    const number = { 'metadata.tenantId': 1, 'metadata.workspaceId': 1, 'metadata.n': 1 } as const;
    // One for each number, whatever its kind: what is being written has none yet.
    await this.files.createIndex(number, { name: 'number_v1', unique: true, sparse: true });
    await this.stored.createIndexes();
  }

  async put(owner: ArchiveOwner, chunks: Chunks, known: () => Archive): Promise<Archive> {
    const { tenantId } = owner;
    const _id = await this.stored.write({ tenantId, filename: `${WRITING}${randomUUID()}` }, chunks);
    try {
      const archive = known();
      await this.files.updateOne({ _id }, { $set: { filename: nameOf(archive), metadata: archive } });
      return archive;
    } catch (error) {
      await this.stored.remove(_id).catch(() => undefined); // what is left of it `collect` removes
      if (isDuplicateKey(error))
        throw new AlreadyExistsError('archive_exists', `There is an archive ${nameOf(known())} already.`);
      throw translateStoreError(error);
    }
  }

  async list(owner: ArchiveOwner): Promise<Archive[]> {
    const prefix = prefixOf(owner);
    const those = { filename: { $gte: prefix, $lt: `${prefix}\uffff` } };
    const files = await this.files.find(those).toArray().catch(rethrow);
    const known = files.map(({ metadata }) => metadata).filter((metadata) => metadata !== undefined);
    return known.sort((a, b) => a.n - b.n);
  }

  async *read(archive: Archive): Chunks {
    const filename = nameOf(archive);
    const file = await this.files.findOne({ filename }).catch(rethrow);
    if (!file) throw missing(filename);
    try {
      yield* this.stored.read(file);
    } catch (error) {
      const isMissing = error instanceof MongoGridFSChunkError || isObjectMissing(error);
      throw isMissing ? missing(filename) : translateStoreError(error);
    }
  }

  async remove(archive: Archive): Promise<void> {
    const file = await this.files.findOne({ filename: nameOf(archive) }).catch(rethrow);
    if (file) await this.stored.remove(file._id).catch(rethrow);
  }

  /** Removes what was being written when its writer ended. @returns how many */
  async collect(nowMs = Date.now()): Promise<number> {
    const old = { $gte: WRITING, $lt: `${WRITING}\uffff` };
    const due = await this.files
      .find({ filename: old, uploadDate: { $lt: new Date(nowMs - HOUR_MS) }, ...this.stored.reachable })
      .limit(BROKEN_MAX)
      .toArray()
      .catch(rethrow);
    for (const { _id } of due) await this.stored.remove(_id).catch(rethrow);
    return due.length + (await this.stored.collect(nowMs));
  }
}

function missing(name: string): Error {
  return new NotFoundError('archive_missing', `The bytes of archive ${name} are missing.`);
}

function rethrow(error: unknown): never {
  throw translateStoreError(error);
}
