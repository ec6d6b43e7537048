import { createHash } from 'node:crypto';
import { chmod, link, lstat, lutimes, mkdir, open, rm, symlink, utimes, type FileHandle } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { createZstdDecompress } from 'node:zlib';
import { InvalidArgumentError, isMargayError, ResourceExhaustedError } from '@margay/errors';
import { extract, type Header } from 'tar-stream';
import { isInside, parentOf, pathOf, textOf, type ArchivePath } from './archive-path';
import { PAX } from './pack-tree';
import { ENTRIES_MAX, placeOf } from './tree';

export interface ArchiveInput {
  chunks: AsyncIterable<Uint8Array>;
  entries: number;
  sha256: string;
  deleted: readonly string[];
}

interface FolderFacts {
  mode: number;
  mtime: number;
}

const ZERO_BLOCK = Buffer.alloc(64 * 1024);
/** Folders of ours stay open to us until everything is in them. */
const OPEN_MODE = 0o700;
const FILE_MODES = 0o1777;
const FOLDER_MODES = 0o3777;

/** Unpacks a chain of archives into an empty folder of its own, and refuses whatever would leave it. */
export class Unpacking {
  /** Folders that are known to be such, and how they are to be in the end. */
  private readonly folders = new Map<ArchivePath, FolderFacts>();
  private bytes = 0;
  private count = 0;

  constructor(
    private readonly root: string,
    /** 0 = any. */
    private readonly maxBytes: number,
  ) {}

  /** @returns entries it had. @throws INVALID_ARGUMENT `bad_archive`, RESOURCE_EXHAUSTED `archive_too_large` */
  async add({ chunks, entries, sha256, deleted }: ArchiveInput): Promise<number> {
    for (const text of deleted) await this.remove(inside(pathOf(text)));
    const hash = createHash('sha256');
    const before = this.count;
    try {
      await this.unpack(hashed(chunks, hash));
    } catch (error) {
      throw isMargayError(error) ? error : bad(`it cannot be read: ${error instanceof Error ? error.message : error}`);
    }
    const count = this.count - before;
    if (hash.digest('hex') !== sha256) throw bad('its bytes are not those that were stored');
    if (count !== entries) throw bad(`it has ${count} entries where ${entries} were stored`);
    return count;
  }

  /** Sets modes and times of folders, the innermost first. @returns those at the top, which are not done yet */
  async finish(): Promise<Map<ArchivePath, FolderFacts>> {
    const top = new Map<ArchivePath, FolderFacts>();
    const all = [...this.folders].sort(([a], [b]) => b.split('/').length - a.split('/').length);
    for (const [path, facts] of all) {
      if (path.includes('/')) await setFolder(placeOf(this.root, path), facts);
      else top.set(path, facts);
    }
    return top;
  }

  private async unpack(bytes: AsyncIterable<Buffer>): Promise<void> {
    const reader = extract();
    const source = Readable.from(bytes);
    const zstd = createZstdDecompress();
    const fail = (error: Error): void => void reader.destroy(error);
    source.on('error', (error) => zstd.destroy(error)).pipe(zstd);
    zstd.on('error', fail).pipe(reader as unknown as NodeJS.WritableStream);
    try {
      for await (const entry of reader) {
        this.count += 1;
        if (this.count > ENTRIES_MAX) throw tooLarge(`it holds more than ${ENTRIES_MAX} files`);
        await this.place(entry.header, entry as AsyncIterable<Buffer>);
        entry.resume();
      }
    } finally {
      source.destroy();
      zstd.destroy();
    }
  }

  private async place(header: Header, content: AsyncIterable<Buffer>): Promise<void> {
    const path = inside(nameOf(header, PAX.path, header.name.replace(/\/$/, '')));
    await this.demandFolder(parentOf(path));
    const mtime = timeOf(header);
    switch (header.type) {
      case 'directory':
        return this.folder(path, { mode: modeOf(header) & FOLDER_MODES, mtime });
      case 'file':
        return this.file(path, content, { size: header.size, mode: modeOf(header) & FILE_MODES, mtime });
      case 'symlink': {
        const target = nameOf(header, PAX.target, header.linkname ?? '');
        if (target === '' || target.includes('\0')) throw bad(`link ${textOf(path)} leads nowhere`);
        await this.make(path, (place) => symlink(Buffer.from(target, 'latin1'), place));
        return lutimes(placeOf(this.root, path), mtime, mtime);
      }
      case 'link':
        return this.link(path, inside(nameOf(header, PAX.target, header.linkname ?? '')));
      default:
        throw bad(`${textOf(path)} is neither file nor folder nor link`);
    }
  }

  private async folder(path: ArchivePath, facts: FolderFacts): Promise<void> {
    if (!this.folders.has(path)) await this.make(path, (place) => mkdir(place, { mode: OPEN_MODE }));
    this.folders.set(path, facts);
  }

  private async file(
    path: ArchivePath,
    content: AsyncIterable<Buffer>,
    { size, mode, mtime }: { size: number; mode: number; mtime: number },
  ): Promise<void> {
    this.bytes += size;
    if (this.maxBytes > 0 && this.bytes > this.maxBytes)
      throw tooLarge(`its files have more than ${this.maxBytes} bytes`);
    const file = await this.make(path, (place) => open(place, 'wx', 0o600));
    try {
      let at = 0;
      for await (const piece of content) at = await writeSparse(file, piece, at);
      if ((await file.stat()).size < size) await file.truncate(size);
      await file.chmod(mode);
      await file.utimes(mtime, mtime);
    } finally {
      await file.close();
    }
  }

  private async link(path: ArchivePath, target: ArchivePath): Promise<void> {
    await this.demandFolder(parentOf(target));
    const facts = await lstat(placeOf(this.root, target)).catch(() => undefined);
    if (!facts?.isFile()) throw bad(`link ${textOf(path)} leads to no file of it`);
    await this.make(path, (place) => link(placeOf(this.root, target), place));
  }

  /** Nothing is ever put behind a link, or below a file. */
  private async demandFolder(path: ArchivePath): Promise<void> {
    if (path === '' || this.folders.has(path)) return;
    throw bad(`it has no folder ${textOf(path)}`);
  }

  /** In the place of what an earlier archive brought. */
  private async make<T>(path: ArchivePath, work: (place: Buffer) => Promise<T>): Promise<T> {
    const place = placeOf(this.root, path);
    try {
      return await work(place);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
      await this.remove(path);
      return work(place);
    }
  }

  private async remove(path: ArchivePath): Promise<void> {
    if (this.folders.delete(path))
      for (const known of this.folders.keys()) if (known.startsWith(`${path}/`)) this.folders.delete(known);
    if (parentOf(path) !== '' && !this.folders.has(parentOf(path))) return; // went with its folder
    await rm(placeOf(this.root, path), { recursive: true, force: true });
  }
}

export async function setFolder(place: Buffer, { mode, mtime }: FolderFacts): Promise<void> {
  await utimes(place, mtime, mtime);
  await chmod(place, mode);
}

/** Blocks of zeros stay holes. */
async function writeSparse(file: FileHandle, piece: Buffer, start: number): Promise<number> {
  for (let at = 0; at < piece.length; at += ZERO_BLOCK.length) {
    const block = piece.subarray(at, at + ZERO_BLOCK.length);
    if (!block.equals(ZERO_BLOCK.subarray(0, block.length))) await file.write(block, 0, block.length, start + at);
  }
  return start + piece.length;
}

async function* hashed(chunks: AsyncIterable<Uint8Array>, hash: ReturnType<typeof createHash>): AsyncIterable<Buffer> {
  for await (const chunk of chunks) {
    hash.update(chunk);
    yield Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
  }
}

function paxOf({ pax }: Header): Record<string, string> {
  return (pax ?? {}) as Record<string, string>;
}

function nameOf(header: Header, key: string, name: string): ArchivePath {
  const base64 = paxOf(header)[key];
  return base64 === undefined ? pathOf(name) : Buffer.from(base64, 'base64').toString('latin1');
}

function modeOf(header: Header): number {
  return paxOf(header)[PAX.mode] === '0' ? 0 : (header.mode ?? OPEN_MODE);
}

function timeOf(header: Header): number {
  const seconds = Number(paxOf(header)[PAX.mtime] ?? NaN);
  return Number.isFinite(seconds) ? seconds : (header.mtime?.getTime() ?? 0) / 1_000;
}

function inside(path: ArchivePath): ArchivePath {
  if (isInside(path)) return path;
  throw bad(`"${textOf(path)}" would lie outside the workspace`);
}

function bad(why: string): Error {
  return new InvalidArgumentError('bad_archive', `The archive is not restored: ${why}.`);
}

function tooLarge(why: string): Error {
  return new ResourceExhaustedError('archive_too_large', `The archive is not restored: ${why}.`);
}
