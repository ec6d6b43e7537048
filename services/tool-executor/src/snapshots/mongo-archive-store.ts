import { randomUUID } from 'node:crypto';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { AlreadyExistsError, NotFoundError } from '@margay/errors';
import { isDuplicateKey, translateStoreError } from '@margay/platform';
import { GridFSBucket, MongoGridFSChunkError, type Collection, type Db, type ObjectId } from 'mongodb';
import { UnfinishedFiles } from '../content/unfinished-files';
import { ArchiveStore, nameOf, prefixOf, type Archive, type ArchiveOwner, type Chunks } from './archive-store';

interface ArchiveFile {
  _id: ObjectId;
  /** Its name, or one of nobody's while it is being written. */
  filename: string;
  uploadDate: Date;
  metadata?: Archive;
}

const BUCKET = 'archives';
const MAX_BYTES = 100 * 1024 ** 2;
const WRITING = 'writing/';
const HOUR_MS = 3_600_000;
const BROKEN_MAX = 50;

/** Archives in GridFS, in a bucket of their own; backups take it with all other collections. */
export class MongoArchiveStore extends ArchiveStore {
  private readonly bucket: GridFSBucket;
  private readonly unfinished: UnfinishedFiles;
  private readonly files: Collection<ArchiveFile>;
  private readonly chunks: Collection<{ files_id: ObjectId; n: number }>;

  constructor(
    db: Db,
    readonly maxBytes = MAX_BYTES,
  ) {
    super();
    this.unfinished = new UnfinishedFiles(db, BUCKET);
    this.bucket = new GridFSBucket(db, { bucketName: BUCKET });
    this.files = db.collection(`${BUCKET}.files`);
    this.chunks = db.collection(`${BUCKET}.chunks`);
  }

  /** Before anything is written. */
  async createIndexes(): Promise<void> {
    await this.files.createIndex({ filename: 1 }, { name: 'name_v1', unique: true });
    const number = { 'metadata.tenantId': 1, 'metadata.workspaceId': 1, 'metadata.n': 1 } as const;
    // One for each number, whatever its kind: what is being written has none yet.
    await this.files.createIndex(number, { name: 'number_v1', unique: true, sparse: true });
    await this.files.createIndex({ filename: 1, uploadDate: 1 });
    await this.chunks.createIndex({ files_id: 1, n: 1 }, { unique: true });
  }

  async put(chunks: Chunks, known: () => Archive): Promise<Archive> {
    const upload = this.bucket.openUploadStream(`${WRITING}${randomUUID()}`);
    const { id: _id } = upload;
    await this.unfinished.begin(_id);
    try {
      await pipeline(Readable.from(chunks), upload);
      const archive = known();
      await this.files.updateOne({ _id }, { $set: { filename: nameOf(archive), metadata: archive } });
      await this.unfinished.end(_id);
      return archive;
    } catch (error) {
      await this.bucket.delete(_id).catch(() => undefined); // what is left of it `collect` removes
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
      yield* this.bucket.openDownloadStream(file._id) as AsyncIterable<Buffer>;
    } catch (error) {
      throw error instanceof MongoGridFSChunkError ? missing(filename) : translateStoreError(error);
    }
  }

  async remove(archive: Archive): Promise<void> {
    const file = await this.files.findOne({ filename: nameOf(archive) }).catch(rethrow);
    if (!file) return;
    // Nobody finds it any more before its bytes go.
    await this.unfinished.begin(file._id);
    await this.files.deleteOne({ _id: file._id }).catch(rethrow);
    await this.chunks.deleteMany({ files_id: file._id }).catch(rethrow);
    await this.unfinished.end(file._id);
  }

  /** Removes what was being written when its writer ended. @returns how many */
  async collect(nowMs = Date.now()): Promise<number> {
    const old = { $gte: WRITING, $lt: `${WRITING}\uffff` };
    const due = await this.files
      .find({ filename: old, uploadDate: { $lt: new Date(nowMs - HOUR_MS) } })
      .limit(BROKEN_MAX)
      .toArray()
      .catch(rethrow);
    for (const { _id } of due) await this.bucket.delete(_id).catch(rethrow);
    return due.length + (await this.unfinished.collect(nowMs));
  }
}

function missing(name: string): Error {
  return new NotFoundError('archive_missing', `The bytes of archive ${name} are missing.`);
}

function rethrow(error: unknown): never {
  throw translateStoreError(error);
}
