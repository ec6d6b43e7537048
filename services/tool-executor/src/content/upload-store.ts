import { createHash } from 'node:crypto';
import { Readable, Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { InvalidArgumentError, isMargayError, NotFoundError } from '@margay/errors';
import { translateStoreError } from '@margay/platform';
import { GridFSBucket, ObjectId, type Collection, type Db } from 'mongodb';
import type { StoredUpload } from './workspace-document';
import { UnfinishedFiles } from './unfinished-files';
import { formatOf } from './upload-format';

interface UploadedFile {
  _id: ObjectId;
  filename: string;
  length: number;
  metadata?: { tenantId: string; workspaceId: string; sha256?: string; at: Date };
}

const BUCKET = 'workspaceUploads';
const ARCHIVE_MAX_BYTES = 2 * 1024 ** 3;
const FILE_MAX_BYTES = 100 * 1024 ** 2;
/** What tells a format lies within these. */
const HEAD_BYTES = 512;

/** Files that people send to be the content of a workspace. They stay until the workspace has them. */
export class UploadStore {
  private readonly bucket: GridFSBucket;
  private readonly files: Collection<UploadedFile>;
  private readonly unfinished: UnfinishedFiles;

  constructor(private readonly db: Db) {
    this.unfinished = new UnfinishedFiles(db, BUCKET);
    this.bucket = new GridFSBucket(db, { bucketName: BUCKET });
    this.files = db.collection(`${BUCKET}.files`);
  }

  /** Also those that GridFS would make with its first upload, when others are writing already. */
  async createIndexes(): Promise<void> {
    await this.files.createIndex({ filename: 1, uploadDate: 1 });
    await this.files.createIndex({ 'metadata.tenantId': 1, 'metadata.workspaceId': 1 }, { name: 'workspace_v1' });
    // Sparse: what is still being sent has none yet.
    await this.files.createIndex({ 'metadata.sha256': 1 }, { name: 'sha256_v1', sparse: true });
    await this.db.collection(`${BUCKET}.chunks`).createIndex({ files_id: 1, n: 1 }, { unique: true });
  }

  /** @throws InvalidArgumentError `too_large`, `bad_request` for an empty one */
  async put(
    of: { tenantId: string; workspaceId: string; filename: string },
    content: AsyncIterable<Uint8Array>,
  ): Promise<StoredUpload> {
    const { tenantId, workspaceId, filename } = of;
    const meter = new UploadMeter(filename);
    const metadata = { tenantId, workspaceId, at: new Date() };
    const stored = this.bucket.openUploadStream(filename, { metadata });
    await this.unfinished.begin(stored.id);
    try {
      await pipeline(Readable.from(content), meter, stored);
    } catch (error) {
      // Bytes of no file: what cannot be removed now `collect` removes.
      await this.remove([stored.id.toHexString()]).catch(() => undefined);
      // A piece that is on its way may still come.
      await this.unfinished.begin(stored.id).catch(() => undefined);
      throw isMargayError(error) ? error : translateStoreError(error);
    }
    await this.unfinished.end(stored.id);
    const fileId = stored.id.toHexString();
    const upload = { fileId, filename, ...meter.facts };
    if (upload.bytes === 0) {
      await this.remove([fileId]);
      throw new InvalidArgumentError('bad_request', 'Invalid input: the body is empty');
    }
    const found = { 'metadata.sha256': upload.sha256 };
    await this.files.updateOne({ _id: stored.id }, { $set: found }).catch(rethrow);
    return upload;
  }

  /** Bytes from `start` up to, but not including, `end`. */
  async read(fileId: string, start: number, end: number): Promise<Buffer> {
    const chunks: Buffer[] = [];
    try {
      const stream = this.bucket.openDownloadStream(new ObjectId(fileId), { start, end });
      for await (const chunk of stream) chunks.push(chunk as Buffer);
    } catch (error) {
      throw translateStoreError(error);
    }
    return Buffer.concat(chunks);
  }

  /** One with these bytes, whoever sent it. @throws NotFoundError */
  async findBySha256(sha256: string): Promise<StoredUpload> {
    const file = await this.files.findOne({ 'metadata.sha256': sha256 }).catch(rethrow);
    if (!file) throw new NotFoundError('upload_not_found', `There is no upload ${sha256}.`);
    const fileId = file._id.toHexString();
    const format = formatOf(file.filename, await this.read(fileId, 0, Math.min(HEAD_BYTES, file.length)));
    return { fileId, sha256, bytes: file.length, filename: file.filename, format };
  }

  async remove(fileIds: readonly string[]): Promise<void> {
    for (const id of fileIds) {
      await this.unfinished.begin(new ObjectId(id));
      await this.bucket.delete(new ObjectId(id)).catch((error: unknown) => {
        if (!isMissing(error)) throw translateStoreError(error);
      });
      await this.unfinished.end(new ObjectId(id));
    }
  }

  /** Removes what was being sent when its taker ended. @returns how many */
  collect(nowMs = Date.now()): Promise<number> {
    return this.unfinished.collect(nowMs);
  }

  /** All that was sent to a workspace, but not what `kept` names. */
  async removeOf(tenantId: string, workspaceId: string, kept: ReadonlySet<string> = new Set()): Promise<void> {
    const of = { 'metadata.tenantId': tenantId, 'metadata.workspaceId': workspaceId };
    const files = await this.files.find(of).toArray().catch(rethrow);
    const going = files.filter(({ metadata }) => !kept.has(metadata?.sha256 ?? ''));
    await this.remove(going.map(({ _id }) => _id.toHexString()));
  }
}

/** Counts and hashes what goes by, and refuses what is too much of it. */
class UploadMeter extends Transform {
  private readonly hash = createHash('sha256');
  private head = Buffer.alloc(0);
  private bytes = 0;

  constructor(private readonly filename: string) {
    super();
  }

  get facts(): Pick<StoredUpload, 'sha256' | 'bytes' | 'format'> {
    const format = formatOf(this.filename, this.head);
    return { sha256: this.hash.digest('hex'), bytes: this.bytes, format };
  }

  override _transform(chunk: Buffer, _: BufferEncoding, done: (error?: Error, chunk?: Buffer) => void): void {
    if (this.head.length < HEAD_BYTES) this.head = Buffer.concat([this.head, chunk.subarray(0, HEAD_BYTES)]);
    this.bytes += chunk.length;
    this.hash.update(chunk);
    const isFile = this.head.length >= HEAD_BYTES && formatOf(this.filename, this.head) === 'file';
    const most = isFile ? FILE_MAX_BYTES : ARCHIVE_MAX_BYTES;
    if (this.bytes <= most) return done(undefined, chunk);
    const what = isFile ? 'a single file' : 'an archive';
    done(new InvalidArgumentError('too_large', `${what} may have at most ${most / 1024 ** 2} MiB`));
  }
}

function isMissing(error: unknown): boolean {
  return error instanceof Error && /^File not found/i.test(error.message);
}

function rethrow(error: unknown): never {
  throw translateStoreError(error);
}
