import { readFile, rename, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { zstdCompress, zstdDecompress } from 'node:zlib';
import { z } from 'zod';
import type { ArchivePath } from './archive-path';
import type { TreeEntry } from './tree';

const squeeze = promisify(zstdCompress);
const stretch = promisify(zstdDecompress);

const Stored = z.object({
  n: z.number(),
  sha256: z.string().default(''),
  stamps: z.array(z.tuple([z.string(), z.string()])),
});

/** An archive; of two that were made at once one is not kept, and bears the number of the other. */
export interface KnownArchive {
  n: number;
  /** Of its bytes; empty where nobody says it. */
  sha256: string;
}

/** What the last archive held, beside the journal: a delta is what is different now. */
export class ArchiveIndex {
  private readonly file: string;

  private constructor(
    stateFolder: string,
    /** The archive that the workspace was last equal to; 0 = none. */
    private readonly archive: KnownArchive,
    private readonly stamps: ReadonlyMap<ArchivePath, string>,
  ) {
    this.file = path.join(stateFolder, 'archive-index.zst');
  }

  /** Commands of the same user may spoil it; then there is none, and the next archive is a full one. */
  static async open(stateFolder: string): Promise<ArchiveIndex> {
    const empty = new ArchiveIndex(stateFolder, { n: 0, sha256: '' }, new Map());
    const parsed = await readFile(empty.file)
      .then((bytes) => stretch(bytes))
      .then((text) => Stored.safeParse(JSON.parse(text.toString('utf8'))))
      .catch(() => undefined); // there is none, or it is spoilt
    if (!parsed?.success) return empty;
    const { n, sha256, stamps } = parsed.data;
    return new ArchiveIndex(stateFolder, { n, sha256 }, new Map(stamps));
  }

  /** Whether the workspace was last equal to that one. */
  isOf({ n, sha256 }: KnownArchive): boolean {
    return n > 0 && this.archive.n === n && (sha256 === '' || this.archive.sha256 === sha256);
  }

  /** @returns the index of the tree as it was when it was read */
  async follow(archive: KnownArchive, tree: readonly TreeEntry[]): Promise<ArchiveIndex> {
    const stamps = new Map(tree.map(({ path, stamp }) => [path, stamp]));
    const next = new ArchiveIndex(path.dirname(this.file), archive, stamps);
    await next.save();
    return next;
  }

  /** @returns what changed or came since, and what went, outermost only */
  compare(tree: readonly TreeEntry[]): { changed: TreeEntry[]; deleted: ArchivePath[] } {
    const present = new Set(tree.map(({ path }) => path));
    const changed = tree.filter(({ path, stamp }) => this.stamps.get(path) !== stamp);
    const gone = [...this.stamps.keys()].filter((path) => !present.has(path));
    const isGone = new Set(gone);
    return { changed, deleted: gone.filter((path) => !isBelow(path, isGone)) };
  }

  private async save(): Promise<void> {
    const bytes = await squeeze(JSON.stringify({ ...this.archive, stamps: [...this.stamps] }));
    // Nothing ever reads half of it.
    const part = `${this.file}.part`;
    await rm(part, { force: true });
    await writeFile(part, bytes, { mode: 0o600 });
    await rename(part, this.file);
  }
}

function isBelow(path: ArchivePath, folders: ReadonlySet<ArchivePath>): boolean {
  for (let at = path.lastIndexOf('/'); at > 0; at = path.lastIndexOf('/', at - 1))
    if (folders.has(path.slice(0, at))) return true;
  return false;
}
