import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { createWriteStream } from 'node:fs';
import { rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import * as zlib from 'node:zlib';
import { FailedPreconditionError } from '@margay/errors';
import type { Part } from './backup-format';

/** One file of a backup; it has its name only once it is whole and on disk. */
export class PartWriter {
  private readonly lines = zstd();
  private readonly hash = createHash('sha256');
  private readonly written: Promise<void>;
  private documents = 0;
  private bytes = 0;
  /** Before compression. */
  textBytes = 0;

  constructor(
    private readonly folder: string,
    private readonly file: string,
  ) {
    const counted = new PassThrough();
    counted.on('data', (chunk: Buffer) => {
      this.hash.update(chunk);
      this.bytes += chunk.length;
    });
    this.written = pipeline(this.lines, counted, createWriteStream(this.partialPath, { flush: true }));
    // Whoever writes or finishes is told.
    this.written.catch(() => undefined);
  }

  async write(line: string): Promise<void> {
    this.documents += 1;
    this.textBytes += line.length;
    if (!this.lines.write(line)) await Promise.race([once(this.lines, 'drain'), this.written]);
  }

  async finish(): Promise<Part> {
    this.lines.end();
    await this.written;
    await rename(this.partialPath, join(this.folder, this.file));
    return { file: this.file, documents: this.documents, bytes: this.bytes, sha256: this.hash.digest('hex') };
  }

  /** Leaves nothing behind. */
  async abandon(): Promise<void> {
    this.lines.destroy();
    await this.written.catch(() => undefined);
    await rm(this.partialPath, { force: true });
  }

  private get partialPath(): string {
    return join(this.folder, `${this.file}.partial`);
  }
}

function zstd(): zlib.ZstdCompress {
  requireZstd();
  return zlib.createZstdCompress();
}

/** @throws FailedPreconditionError `zstd_missing` */
export function requireZstd(): void {
  if (typeof zlib.createZstdCompress === 'function') return;
  const message = `Node ${process.versions.node} has no zstd, which backups are written in; run Node 22.15 or newer.`;
  throw new FailedPreconditionError('zstd_missing', message);
}
