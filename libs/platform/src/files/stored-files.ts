import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { UnavailableError } from '@margay/errors';
import { GridFSBucket, ObjectId, type Collection, type Db, type Document } from 'mongodb';
import { translateStoreError } from '../mongo/mongo-errors';
import type { Chunks, ObjectStore } from './object-store';
import { UnfinishedFiles } from './unfinished-files';

/** What is known of a file, as GridFS keeps it. */
export interface StoredFile<Metadata extends Document = Document> {
  _id: ObjectId;
  filename: string;
  length: number;
  uploadDate: Date;
  metadata?: Metadata;
  /** Of the object that holds its bytes; absent where pieces in the document store do. */
  objectKey?: string;
}

/** Where the bytes of a file are. */
export type FilePlace = Pick<StoredFile, '_id' | 'objectKey'>;

export interface NewFile<Metadata extends Document = Document> {
  tenantId: string;
  filename: string;
  metadata?: Metadata;
}

export interface StoredFilesOptions {
  /** Where new bytes go; without one into pieces in the document store. */
  objects?: ObjectStore | undefined;
  /** Whether pieces are noted before they are written, for `collect`; objects always are. Default true. */
  notesPieces?: boolean;
}

/** GridFS's own; of no meaning for objects. */
const CHUNK_BYTES = 255 * 1024;

/**
 * Files whose records are in the document store and whose bytes are in pieces beside them (GridFS) or in an object store. Which of
 * the two stands in the record, so both are read whatever is configured.
 */
export class StoredFiles<Metadata extends Document = Document> {
  readonly files: Collection<StoredFile<Metadata>>;
  private readonly pieces: Collection<{ files_id: ObjectId; n: number }>;
  private readonly gridFs: GridFSBucket;
  private readonly unfinished: UnfinishedFiles;
  private readonly objects: ObjectStore | undefined;
  private readonly notesPieces: boolean;

  constructor(
    private readonly db: Db,
    private readonly bucket: string,
    { objects, notesPieces = true }: StoredFilesOptions = {},
  ) {
    this.objects = objects;
    this.notesPieces = notesPieces;
    this.files = db.collection(`${bucket}.files`);
    this.pieces = db.collection(`${bucket}.chunks`);
    this.gridFs = new GridFSBucket(db, { bucketName: bucket, chunkSizeBytes: CHUNK_BYTES });
    this.unfinished = new UnfinishedFiles(db, bucket, objects);
  }

  /** Which files can be read and removed with this driver; a filter of `files`. */
  get reachable(): { objectKey?: { $exists: false } } {
    return this.objects ? {} : { objectKey: { $exists: false } };
  }

  /** Those that GridFS would make with its first upload, when others are writing already. */
  async createIndexes(): Promise<void> {
    await this.files.createIndex({ filename: 1, uploadDate: 1 });
    await this.pieces.createIndex({ files_id: 1, n: 1 }, { unique: true });
  }

  /** Stores bytes, then the file. Throws what the source throws. */
  async write(file: NewFile<Metadata>, chunks: Chunks): Promise<ObjectId> {
    const _id = new ObjectId();
    const objectKey = this.objects && this.keyOf(file.tenantId, _id);
    const place: FilePlace = { _id, ...(objectKey !== undefined && { objectKey }) };
    const isNoted = this.notesPieces || objectKey !== undefined;
    if (isNoted) await this.unfinished.begin(place);
    try {
      await (objectKey === undefined
        ? this.writePieces(_id, file, chunks)
        : this.writeObject({ _id, objectKey }, file, chunks));
    } catch (error) {
      // What cannot be removed now, or is still on its way, `collect` removes.
      await this.discard(place).catch(() => undefined);
      throw translateStoreError(error);
    }
    if (isNoted) await this.unfinished.end(_id);
    return _id;
  }

  /** Bytes from `start` up to, but not including, `end`. Breaks off with NOT_FOUND `object_missing` or an error of GridFS. */
  async *read(
    file: Pick<StoredFile, '_id' | 'objectKey' | 'length'>,
    start = 0,
    end = file.length,
  ): AsyncIterable<Buffer> {
    if (start >= Math.min(end, file.length)) return;
    if (file.objectKey === undefined) {
      yield* this.gridFs.openDownloadStream(file._id, { start, end }) as AsyncIterable<Buffer>;
      return;
    }
    const chunks = this.demanded(file.objectKey).read(file.objectKey, start, Math.min(end, file.length));
    for await (const chunk of chunks) yield Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
  }

  /** Nobody finds it any more before its bytes go. Nothing happens where there is none. */
  async remove(_id: ObjectId): Promise<void> {
    const found = await this.files.findOne({ _id }, { projection: { objectKey: 1 } });
    if (!found) return;
    const { objectKey } = found;
    if (objectKey !== undefined) this.demanded(objectKey);
    await this.unfinished.begin({ _id, ...(objectKey !== undefined && { objectKey }) });
    await this.files.deleteOne({ _id });
    await this.removeBytes(found);
    await this.unfinished.end(_id);
  }

  /** The file stays. */
  async removeBytes({ _id, objectKey }: FilePlace): Promise<void> {
    if (objectKey !== undefined) await this.demanded(objectKey).remove(objectKey);
    await this.pieces.deleteMany({ files_id: _id });
  }

  /** Removes bytes whose writer or remover ended a day ago. @returns how many files that were */
  collect(nowMs = Date.now()): Promise<number> {
    return this.unfinished.collect(nowMs);
  }

  /** A prefix for each database, a prefix for each tenant below it. */
  private keyOf(tenantId: string, _id: ObjectId): string {
    return [this.db.databaseName, tenantId, this.bucket, _id.toHexString()].map(encodeURIComponent).join('/');
  }

  private async writePieces(_id: ObjectId, { filename, metadata }: NewFile<Metadata>, chunks: Chunks): Promise<void> {
    await pipeline(Readable.from(chunks), this.gridFs.openUploadStreamWithId(_id, filename, metadata && { metadata }));
  }

  private async writeObject(place: Required<FilePlace>, { filename, metadata }: NewFile<Metadata>, chunks: Chunks) {
    let length = 0;
    const counted = async function* (): Chunks {
      for await (const chunk of chunks) {
        length += chunk.byteLength;
        yield chunk;
      }
    };
    await this.demanded(place.objectKey).write(place.objectKey, counted());
    const file = {
      ...place,
      length,
      chunkSize: CHUNK_BYTES,
      uploadDate: new Date(),
      filename,
      ...(metadata && { metadata }),
    };
    await this.files.insertOne(file as never);
  }

  private async discard(place: FilePlace): Promise<void> {
    await this.files.deleteOne({ _id: place._id });
    await this.removeBytes(place);
    if (this.notesPieces || place.objectKey !== undefined) await this.unfinished.begin(place);
  }

  private demanded(objectKey: string): ObjectStore {
    if (this.objects) return this.objects;
    throw new UnavailableError(
      'blob_store_missing',
      `The bytes of ${objectKey} are in a bucket; set MARGAY_BLOB_DRIVER to s3, and MARGAY_S3_BUCKET, to reach them.`,
    );
  }
}
