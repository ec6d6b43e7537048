import { createHash } from 'node:crypto';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { NotFoundError } from '@margay/errors';
import { BlobStore } from '@margay/log';
import type { Collection, GridFSBucket } from 'mongodb';

interface BlobFile {
  length: number;
}

/** Blobs in GridFS. The file name is `<tenant>/<sha256>`, so a tenant never reaches another's bytes. */
export class MongoBlobStore extends BlobStore {
  constructor(private readonly bucket: GridFSBucket) {
    super();
  }

  /**
   * Those that GridFS makes itself with its first upload, made before it: an index that is built while blobs are written
   * may miss some in the development store.
   */
  async createIndexes(collection: (name: string) => Pick<Collection, 'createIndex'>): Promise<void> {
    await collection('fs.files').createIndex({ filename: 1, uploadDate: 1 });
    await collection('fs.chunks').createIndex({ files_id: 1, n: 1 }, { unique: true });
  }

  async put(tenantId: string, bytes: Uint8Array): Promise<string> {
    const id = createHash('sha256').update(bytes).digest('hex');
    if (await this.find(tenantId, id)) return id;
    // Two writers of one blob leave two equal files: either serves.
    const metadata = { tenantId, touchedAt: new Date() };
    await pipeline(Readable.from([bytes]), this.bucket.openUploadStream(name(tenantId, id), { metadata }));
    return id;
  }

  async get(tenantId: string, id: string): Promise<Uint8Array> {
    const chunks: Buffer[] = [];
    for await (const chunk of this.read(tenantId, id, 0, undefined)) chunks.push(chunk);
    return Buffer.concat(chunks);
  }

  /** Size in bytes. @throws NotFoundError `blob_not_found` */
  async size(tenantId: string, id: string): Promise<number> {
    const file = await this.find(tenantId, id);
    if (!file) throw notFound(id);
    return file.length;
  }

  /** Bytes from `start` up to, but not including, `end`. */
  async *read(tenantId: string, id: string, start: number, end: number | undefined): AsyncIterable<Buffer> {
    if (!(await this.find(tenantId, id))) throw notFound(id);
    const options = end === undefined ? { start } : { start, end };
    yield* this.bucket.openDownloadStreamByName(name(tenantId, id), options) as AsyncIterable<Buffer>;
  }

  private async find(tenantId: string, id: string): Promise<BlobFile | undefined> {
    const [file] = await this.bucket
      .find({ filename: name(tenantId, id) })
      .limit(1)
      .toArray();
    return file;
  }
}

function name(tenantId: string, id: string): string {
  return `${tenantId}/${id}`;
}

function notFound(id: string): Error {
  return new NotFoundError('blob_not_found', `blob ${id} not found`);
}
