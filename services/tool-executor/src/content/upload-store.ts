import { createHash } from 'node:crypto';
import { InvalidArgumentError, NotFoundError } from '@margay/errors';
import { translateStoreError } from '@margay/platform';
import { StoredFiles, type ObjectStore } from '@margay/platform/files';
import { ObjectId, type Db } from 'mongodb';
import type { StoredUpload } from './workspace-document';
import { formatOf } from './upload-format';

interface UploadMetadata {
  tenantId: string;
  workspaceId: string;
  sha256?: string;
  at: Date;
}

const BUCKET = 'workspaceUploads';
const ARCHIVE_MAX_BYTES = 2 * 1024 ** 3;
const FILE_MAX_BYTES = 100 * 1024 ** 2;
/** What tells a format lies within these. */
const HEAD_BYTES = 512;

/** Files that people send to be the content of a workspace. They stay until the workspace has them. */
export class UploadStore {
  private readonly stored: StoredFiles<UploadMetadata>;

  constructor(db: Db, objects?: ObjectStore) {
    this.stored = new StoredFiles(db, BUCKET, { objects });
  }

  private get files() {
    return this.stored.files;
  }

  async createIndexes(): Promise<void> {
    await this.stored.createIndexes();
    await this.files.createIndex({ 'metadata.tenantId': 1, 'metadata.workspaceId': 1 }, { name: 'workspace_v1' });
    // Sparse: what is still being sent has none yet.
    await this.files.createIndex({ 'metadata.sha256': 1 }, { name: 'sha256_v1', sparse: true });
  }

  /** @throws InvalidArgumentError `too_large`, `bad_request` for an empty one */
  async put(
    of: { tenantId: string; workspaceId: string; filename: string },
    content: AsyncIterable<Uint8Array>,
  ): Promise<StoredUpload> {
    const { tenantId, workspaceId, filename } = of;
    const meter = new UploadMeter(filename);
    const metadata = { tenantId, workspaceId, at: new Date() };
    const _id = await this.stored.write({ tenantId, filename, metadata }, meter.watch(content));
    const upload = { fileId: _id.toHexString(), filename, ...meter.facts };
    if (upload.bytes === 0) {
      await this.remove([upload.fileId]);
      throw new InvalidArgumentError('bad_request', 'Invalid input: the body is empty');
    }
    await this.files.updateOne({ _id }, { $set: { 'metadata.sha256': upload.sha256 } }).catch(rethrow);
    return upload;
  }

  /** Bytes from `start` up to, but not including, `end`. */
  async read(fileId: string, start: number, end: number): Promise<Buffer> {
    const file = await this.files.findOne({ _id: new ObjectId(fileId) }).catch(rethrow);
    if (!file) throw new NotFoundError('upload_not_found', `There is no upload ${fileId}.`);
    const chunks: Buffer[] = [];
    try {
      for await (const chunk of this.stored.read(file, start, end)) chunks.push(chunk);
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
    for (const id of fileIds) await this.stored.remove(new ObjectId(id)).catch(rethrow);
  }

  /** Removes what was being sent when its taker ended. @returns how many */
  collect(nowMs = Date.now()): Promise<number> {
    return this.stored.collect(nowMs);
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
class UploadMeter {
  private readonly hash = createHash('sha256');
  private head = Buffer.alloc(0);
  private bytes = 0;

  constructor(private readonly filename: string) {}

  get facts(): Pick<StoredUpload, 'sha256' | 'bytes' | 'format'> {
    const format = formatOf(this.filename, this.head);
    return { sha256: this.hash.digest('hex'), bytes: this.bytes, format };
  }

  async *watch(content: AsyncIterable<Uint8Array>): AsyncIterable<Uint8Array> {
    for await (const chunk of content) {
      this.take(chunk);
      yield chunk;
    }
  }

  private take(chunk: Uint8Array): void {
    if (this.head.length < HEAD_BYTES) this.head = Buffer.concat([this.head, chunk.subarray(0, HEAD_BYTES)]);
    this.bytes += chunk.length;
    this.hash.update(chunk);
    const isFile = this.head.length >= HEAD_BYTES && formatOf(this.filename, this.head) === 'file';
    const most = isFile ? FILE_MAX_BYTES : ARCHIVE_MAX_BYTES;
    if (this.bytes <= most) return;
    const what = isFile ? 'a single file' : 'an archive';
    throw new InvalidArgumentError('too_large', `${what} may have at most ${most / 1024 ** 2} MiB`);
  }
}

function rethrow(error: unknown): never {
  throw translateStoreError(error);
}
