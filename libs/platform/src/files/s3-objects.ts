import { Readable } from 'node:stream';
import { isMargayError } from '@margay/errors';
import type { S3Client } from '@aws-sdk/client-s3';
import { ObjectStore, type Chunks } from './object-store';
import { isObjectMissing, translateS3Error } from './s3-errors';

/** The library, which only installations with a bucket load. */
export interface S3Library {
  s3: typeof import('@aws-sdk/client-s3');
  storage: typeof import('@aws-sdk/lib-storage');
}

const PART_BYTES = 8 * 1024 ** 2;
/** Parts on their way at once. */
const PARTS = 2;
/** Of an object in one request; one piece of each reader is in memory. */
const READ_BYTES = 2 * 1024 ** 2;
/** Chunks of the source. */
const READ_AHEAD = 2;

/** Objects in a bucket of S3, or of a server that speaks its protocol. */
export class S3Objects extends ObjectStore {
  readonly place: string;

  constructor(
    private readonly library: S3Library,
    private readonly client: S3Client,
    readonly bucket: string,
    endpoint: string | undefined,
  ) {
    super();
    this.place = endpoint ?? 'S3';
  }

  /** In parts where there is more than one; parts of what breaks off are removed again. */
  async write(key: string, chunks: Chunks): Promise<void> {
    let sourceError: { error: unknown } | undefined;
    const watched = async function* (): Chunks {
      try {
        yield* chunks;
      } catch (error) {
        sourceError = { error };
        throw error;
      }
    };
    const upload = new this.library.storage.Upload({
      client: this.client,
      params: { Bucket: this.bucket, Key: key, Body: Readable.from(watched(), { highWaterMark: READ_AHEAD }) },
      partSize: PART_BYTES,
      queueSize: PARTS,
    });
    try {
      await upload.done();
    } catch (error) {
      // What its source said is no word of the server.
      if (sourceError) throw sourceError.error;
      throw this.translated(error, key);
    }
  }

  /** A piece at a time, each taken at once: whoever reads slowly, or not on, holds none of the few connections. */
  async *read(key: string, start: number, end: number): Chunks {
    for (let at = start; at < end; at += READ_BYTES) yield* await this.piece(key, at, Math.min(end, at + READ_BYTES));
  }

  private async piece(key: string, start: number, end: number): Promise<Uint8Array[]> {
    const Range = `bytes=${start}-${end - 1}`;
    const chunks: Uint8Array[] = [];
    try {
      const { Body } = await this.client.send(
        new this.library.s3.GetObjectCommand({ Bucket: this.bucket, Key: key, Range }),
      );
      for await (const chunk of Body as unknown as Chunks) chunks.push(chunk);
    } catch (error) {
      throw this.translated(error, key);
    }
    return chunks;
  }

  async remove(key: string): Promise<void> {
    try {
      await this.client.send(new this.library.s3.DeleteObjectCommand({ Bucket: this.bucket, Key: key }));
    } catch (error) {
      const known = this.translated(error, key);
      if (!isObjectMissing(known)) throw known;
    }
  }

  async abandon(key: string): Promise<void> {
    for (const UploadId of await this.unfinished(key)) {
      const abort = new this.library.s3.AbortMultipartUploadCommand({ Bucket: this.bucket, Key: key, UploadId });
      await this.client.send(abort).catch((error: unknown) => {
        if ((error as Error).name !== 'NoSuchUpload') throw this.translated(error, key);
      });
    }
    await this.remove(key);
  }

  /** Whether a rule of the bucket removes what is left of uploads that nobody finished; not every server has rules. */
  async unfinishedRule(): Promise<'set' | 'missing' | 'unknown'> {
    const ask = new this.library.s3.GetBucketLifecycleConfigurationCommand({ Bucket: this.bucket });
    try {
      const { Rules = [] } = await this.client.send(ask);
      const isOne = Rules.some(
        (rule) => rule.Status === 'Enabled' && rule.AbortIncompleteMultipartUpload !== undefined,
      );
      return isOne ? 'set' : 'missing';
    } catch (error) {
      return (error as Error).name === 'NoSuchLifecycleConfiguration' ? 'missing' : 'unknown';
    }
  }

  close(): void {
    this.client.destroy();
  }

  /** Uploads of this key that nobody finished; none where they may not be listed: a rule of the bucket removes them. */
  private async unfinished(key: string): Promise<string[]> {
    const list = new this.library.s3.ListMultipartUploadsCommand({ Bucket: this.bucket, Prefix: key });
    try {
      const { Uploads = [] } = await this.client.send(list);
      return Uploads.flatMap(({ Key, UploadId }) => (Key === key && UploadId !== undefined ? [UploadId] : []));
    } catch (error) {
      const known = this.translated(error, key);
      if (isMargayError(known) && ['blob_store_denied', 'object_missing'].includes(known.reason)) return [];
      throw known;
    }
  }

  private translated(error: unknown, key: string): Error {
    return translateS3Error(error, key, this);
  }
}
