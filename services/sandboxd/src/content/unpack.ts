import { createReadStream } from 'node:fs';
import { copyFile } from 'node:fs/promises';
import path from 'node:path';
import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createGunzip, createZstdDecompress } from 'node:zlib';
import type { UploadFormat } from '@margay/contracts';
import { extract } from 'tar-stream';
import { openPromise, type Entry, type ZipFile } from 'yauzl';
import { ContentFailure, failureOf } from './content-failure';
import { EntryWriter, type ArchiveEntry } from './entry-writer';

export interface UnpackOptions {
  file: string;
  format: UploadFormat;
  bytes: number;
  /** Of a single file. */
  filename: string;
  into: string;
  maxBytes: number;
  signal: AbortSignal;
}

const ENTRIES_MAX = 500_000;
const RATIO_MAX = 100;
/** Of zip: the file's type in the permissions that Unix puts there. */
const TYPE_BITS = 0o170000;
const TYPES: Record<number, string> = {
  0: 'file',
  0o100000: 'file',
  0o040000: 'directory',
  0o120000: 'symlink',
  0o060000: 'block-device',
  0o020000: 'character-device',
  0o010000: 'fifo',
};
const UNIX = 3;
const TARGET_MAX_BYTES = 4_096;

/** Unpacks an upload into an empty folder. @throws ContentFailure */
export async function unpack(options: UnpackOptions): Promise<void> {
  const { file, format, filename, into, bytes, maxBytes } = options;
  if (bytes > maxBytes) throw new ContentFailure('too_large', `It is larger than ${maxBytes} bytes.`);
  if (format === 'file') return copyFile(file, path.join(into, path.basename(filename)));
  const limits = { entries: ENTRIES_MAX, ratio: RATIO_MAX, archiveBytes: bytes, bytes: maxBytes };
  const writer = new EntryWriter(into, limits);
  try {
    if (format === 'zip') await unpackZip(options, writer);
    else await unpackTar(options, writer);
    await writer.finish();
  } catch (error) {
    options.signal.throwIfAborted();
    const known = failureOf(error);
    if (known) throw known;
    if (isOfFiles(error)) throw error;
    const message = error instanceof Error ? error.message : String(error);
    throw new ContentFailure('bad_archive', `The archive cannot be read: ${message.slice(0, 200)}`);
  }
}

async function unpackTar({ file, format, signal }: UnpackOptions, writer: EntryWriter): Promise<void> {
  const entries = extract();
  const source = createReadStream(file);
  const filled = pipeline([source, ...decompressors(format), entries], { signal });
  const taken = (async () => {
    for await (const entry of entries) {
      const { name, type, mode = 0, linkname } = entry.header;
      await writer.write({ name, type: type ?? 'file', mode, target: linkname ?? '' }, entry as unknown as Readable);
    }
  })();
  // Whichever fails first says why; the other one only that it was cut off.
  await Promise.all([taken.catch((error: unknown) => (entries.destroy(), Promise.reject(error as Error))), filled]);
}

function decompressors(format: UploadFormat): NodeJS.ReadWriteStream[] {
  if (format === 'tar.gz') return [createGunzip()];
  return format === 'tar.zst' ? [createZstdDecompress()] : [];
}

async function unpackZip({ file, signal }: UnpackOptions, writer: EntryWriter): Promise<void> {
  // Names are judged by the writer, links among them.
  const zip = await openPromise(file, {
    lazyEntries: true,
    autoClose: false,
    decodeStrings: true,
    strictFileNames: true,
  });
  try {
    for await (const entry of zip.eachEntry()) {
      signal.throwIfAborted();
      const facts = factsOf(entry);
      const content = await zip.openReadStreamPromise(entry);
      const target = facts.type === 'symlink' ? await targetOf(zip, entry) : '';
      await writer.write({ ...facts, target }, content);
    }
  } finally {
    zip.close();
  }
}

function factsOf({ fileName: name, versionMadeBy, externalFileAttributes }: Entry): Omit<ArchiveEntry, 'target'> {
  if (name.endsWith('/')) return { name, type: 'directory', mode: 0o755 };
  const attributes = versionMadeBy >>> 8 === UNIX ? externalFileAttributes >>> 16 : 0o100644;
  return { name, type: TYPES[attributes & TYPE_BITS] ?? 'thing of an unknown kind', mode: attributes & 0o7777 };
}

async function targetOf(zip: ZipFile, entry: Entry): Promise<string> {
  if (entry.uncompressedSize > TARGET_MAX_BYTES) return '';
  const chunks: Buffer[] = [];
  for await (const chunk of await zip.openReadStreamPromise(entry)) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString('utf8');
}

/** Errors of the disk, not of what was read: those are worth another try. */
function isOfFiles(error: unknown): boolean {
  return (error as NodeJS.ErrnoException).syscall !== undefined;
}
