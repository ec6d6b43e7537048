import { randomUUID } from 'node:crypto';
import { createReadStream, createWriteStream } from 'node:fs';
import { link, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { AlreadyExistsError, NotFoundError } from '@margay/errors';
import { z } from 'zod';
import { ArchiveStore, nameOf, prefixOf, type Archive, type ArchiveOwner, type Chunks } from './archive-store';

const Manifest = z.object({
  tenantId: z.string(),
  workspaceId: z.string(),
  n: z.number(),
  base: z.number(),
  entries: z.number(),
  deleted: z.array(z.string()),
  bytes: z.number(),
  sha256: z.string(),
  revision: z.string(),
  at: z.coerce.date(),
});

const MANIFEST = '.json';
const MAX_BYTES = 2 * 1024 ** 3;

/** Archives as files, each with its manifest beside it; for the process driver. */
export class FileArchiveStore extends ArchiveStore {
  readonly maxBytes = MAX_BYTES;
  /** Of two that bear one number, the second would take the bytes of the first away before its manifest is there. */
  private turn: Promise<unknown> = Promise.resolve();

  /** @param base made when it is needed */
  constructor(private readonly base: string) {
    super();
  }

  async put(_: ArchiveOwner, chunks: Chunks, known: () => Archive): Promise<Archive> {
    await mkdir(this.base, { recursive: true, mode: 0o700 });
    const part = path.join(this.base, `.${randomUUID()}.part`);
    try {
      await pipeline(Readable.from(chunks), createWriteStream(part, { mode: 0o600, flush: true }));
      const archive = known();
      const published = this.turn.then(() => this.publish(part, archive));
      this.turn = published.catch(() => undefined); // told to who stores it
      await published;
      return archive;
    } finally {
      for (const left of [part, part + MANIFEST]) await rm(left, { force: true });
    }
  }

  async list(owner: ArchiveOwner): Promise<Archive[]> {
    const folder = this.fileOf(prefixOf(owner));
    const names = await readdir(folder).catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return [];
      throw error;
    });
    const manifests = names.filter((name) => name.endsWith(MANIFEST));
    const texts = await Promise.all(manifests.map((name) => readFile(path.join(folder, name), 'utf8')));
    return texts.map((text) => Manifest.parse(JSON.parse(text))).sort((a, b) => a.n - b.n);
  }

  async *read(archive: Archive): Chunks {
    try {
      yield* createReadStream(this.fileOf(nameOf(archive))) as AsyncIterable<Buffer>;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
      throw new NotFoundError('archive_missing', `The bytes of archive ${nameOf(archive)} are missing.`);
    }
  }

  async remove(archive: Archive): Promise<void> {
    const file = this.fileOf(nameOf(archive));
    for (const name of [file + MANIFEST, file]) await rm(name, { force: true });
  }

  private async publish(part: string, archive: Archive): Promise<void> {
    const file = this.fileOf(nameOf(archive));
    await mkdir(path.dirname(file), { recursive: true, mode: 0o700 });
    // Its number is free for whoever links first; without its manifest nobody sees it.
    await this.linkFirst(part, file, archive);
    await writeFile(`${part}${MANIFEST}`, JSON.stringify(archive), { mode: 0o600, flush: true });
    await link(`${part}${MANIFEST}`, file + MANIFEST).catch(taken(archive));
  }

  /** Bytes without a manifest are what a crash left: they give way. */
  private async linkFirst(part: string, file: string, archive: Archive): Promise<void> {
    const isTaken = (await this.list(archive)).some(({ n }) => n === archive.n);
    if (isTaken) throw exists(archive);
    await rm(file, { force: true });
    await link(part, file).catch(taken(archive));
  }

  private fileOf(name: string): string {
    return path.join(this.base, ...name.split('/').map(encodeURIComponent));
  }
}

function taken(archive: Archive) {
  return (error: NodeJS.ErrnoException): never => {
    throw error.code === 'EEXIST' ? exists(archive) : error;
  };
}

function exists(archive: Archive): Error {
  return new AlreadyExistsError('archive_exists', `There is an archive ${archive.n} of that workspace already.`);
}
