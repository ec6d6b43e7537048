import { createWriteStream } from 'node:fs';
import { chmod, link, lstat, mkdir, rm, symlink } from 'node:fs/promises';
import path from 'node:path';
import { Transform, type Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { ContentFailure, shownName } from './content-failure';

export interface ArchiveEntry {
  name: string;
  type: string;
  /** Permissions with what lies above them: setuid, setgid, sticky. */
  mode: number;
  /** Of links. */
  target: string;
}

export interface WriterLimits {
  entries: number;
  /** Of all files together, unpacked. */
  bytes: number;
  /** So many times the archive may grow. */
  ratio: number;
  archiveBytes: number;
}

/** Archives of a few hundred bytes may well grow more. */
const RATIO_FROM_BYTES = 1024 * 1024;
const NAME_MAX_BYTES = 4_096;
const PART_MAX_BYTES = 255;
const SPECIAL_BITS = 0o7000;
const UNJUDGED = new Set(['symlink', 'directory']);
/** What Margay keeps there is nobody's to bring. */
const OWN_FOLDER = '.margay';

/**
 * Writes the entries of an archive that nobody vouches for. A name or link that leads out, a device, a special bit: the
 * archive is refused as a whole. Links are made last, so that nothing is ever written through one.
 */
export class EntryWriter {
  private entries = 0;
  private bytes = 0;
  private readonly links: { name: string; target: string }[] = [];

  constructor(
    private readonly root: string,
    private readonly limits: WriterLimits,
  ) {}

  /** @throws ContentFailure `unsafe_archive`, `too_large` */
  async write(entry: ArchiveEntry, content: Readable): Promise<void> {
    this.entries += 1;
    if (this.entries > this.limits.entries)
      throw new ContentFailure('too_large', `The archive has more than ${this.limits.entries} entries.`);
    const name = checkedName(entry.name);
    // Those of a link mean nothing, and those of folders are not taken over.
    if (!UNJUDGED.has(entry.type) && (entry.mode & SPECIAL_BITS) !== 0)
      throw unsafe(entry.name, 'has a setuid, setgid or sticky bit');
    switch (entry.type) {
      case 'directory':
        content.resume();
        return this.makeFolder(name);
      case 'file':
        return this.writeFile(name, (entry.mode & 0o111) !== 0, content);
      case 'symlink':
        content.resume();
        this.links.push({ name, target: checkedTarget(name, entry.target) });
        return;
      case 'link':
        content.resume();
        return this.linkFile(name, checkedName(entry.target));
      default:
        content.resume();
        throw unsafe(entry.name, `is a ${entry.type}`);
    }
  }

  /** Makes the links. */
  async finish(): Promise<void> {
    for (const { name, target } of this.links) {
      const at = await this.place(name);
      await symlink(target, at).catch((error: NodeJS.ErrnoException) => {
        throw error.code === 'EEXIST' ? unsafe(name, 'is a link and something else, too') : error;
      });
    }
  }

  private async makeFolder(name: string): Promise<void> {
    if (name === '') return;
    await mkdir(path.join(this.root, name), { recursive: true }).catch((error: NodeJS.ErrnoException) => {
      throw isInTheWay(error) ? unsafe(name, 'is a folder and something else, too') : error;
    });
  }

  private async writeFile(name: string, isProgram: boolean, content: Readable): Promise<void> {
    const at = await this.place(name);
    // A later entry of the same name counts.
    await rm(at, { force: true }).catch((error: NodeJS.ErrnoException) => {
      throw isInTheWay(error) || error.code === 'ERR_FS_EISDIR'
        ? unsafe(name, 'is a file and something else, too')
        : error;
    });
    await pipeline(content, this.counter(), createWriteStream(at, { flags: 'wx', mode: 0o644 }));
    if (isProgram) await chmod(at, 0o755);
  }

  /** Only to what the archive itself brought before. */
  private async linkFile(name: string, target: string): Promise<void> {
    const from = path.join(this.root, target);
    const facts = await lstat(from).catch(() => undefined);
    if (!facts?.isFile()) throw unsafe(name, 'is linked to what is no file of the archive');
    await link(from, await this.place(name)).catch((error: NodeJS.ErrnoException) => {
      throw error.code === 'EEXIST' ? unsafe(name, 'is a link and something else, too') : error;
    });
  }

  private async place(name: string): Promise<string> {
    if (name === '') throw unsafe('.', 'is the workspace itself');
    await this.makeFolder(parentOf(name));
    return path.join(this.root, name);
  }

  private counter(): Transform {
    const { bytes: most, ratio, archiveBytes } = this.limits;
    const ratioBytes = archiveBytes * ratio + RATIO_FROM_BYTES;
    return new Transform({
      transform: (chunk: Buffer, _, done) => {
        this.bytes += chunk.length;
        if (this.bytes > most) done(new ContentFailure('too_large', `Unpacked it is larger than ${most} bytes.`));
        else if (this.bytes > ratioBytes)
          done(new ContentFailure('too_large', `Unpacked it is more than ${ratio} times as large as the archive.`));
        else done(null, chunk);
      },
    });
  }
}

/** Relative to the workspace; empty for the workspace itself. */
function checkedName(name: string): string {
  if (name === '' || Buffer.byteLength(name) > NAME_MAX_BYTES)
    throw unsafe(name, 'has a name that is too long, or none');
  if (/[\p{Cc}\uFFFD]/u.test(name)) throw unsafe(name, 'has control characters or no text in its name');
  if (name.startsWith('/')) throw unsafe(name, 'has an absolute name');
  const parts = name.split('/').filter((part) => part !== '' && part !== '.');
  if (parts.includes('..')) throw unsafe(name, 'leads out of the workspace');
  if (parts[0] === OWN_FOLDER) throw unsafe(name, `lies in ${OWN_FOLDER}, which Margay keeps`);
  if (parts.some((part) => Buffer.byteLength(part) > PART_MAX_BYTES)) throw unsafe(name, 'has a name that is too long');
  return parts.join('/');
}

/**
 * `..` may only stand at the beginning of a link's target: behind another part, which may be a link itself, nobody can tell
 * where it leads.
 */
function checkedTarget(name: string, target: string): string {
  if (target === '' || target.startsWith('/') || /\p{Cc}/u.test(target)) throw unsafe(name, 'is a link that leads out');
  const parts = target.split('/').filter((part) => part !== '' && part !== '.');
  const down = parts.findIndex((part) => part !== '..');
  const ups = down === -1 ? parts.length : down;
  const depth = name.split('/').length - 1;
  if (ups > depth || parts.slice(ups).includes('..')) throw unsafe(name, 'is a link that leads out');
  return target;
}

function parentOf(name: string): string {
  const slash = name.lastIndexOf('/');
  return slash === -1 ? '' : name.slice(0, slash);
}

function isInTheWay({ code }: NodeJS.ErrnoException): boolean {
  return code === 'EEXIST' || code === 'ENOTDIR' || code === 'EISDIR';
}

function unsafe(name: string, why: string): ContentFailure {
  return new ContentFailure('unsafe_archive', `The archive is refused: ${shownName(name)} ${why}.`);
}
