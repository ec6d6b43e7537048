// Layers as gzipped blobs in the cache, named by what goes into them: a layer that was made before is not made again.
import { createHash, type Hash } from 'node:crypto';
import { createReadStream, createWriteStream } from 'node:fs';
import { mkdir, readdir, readFile, rename, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable, Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createGzip } from 'node:zlib';
import { complete, type Entry } from './entries.ts';
import { tar } from './tar.ts';

/** Raise it when the writer changes what it writes for the same entries. */
const FORMAT = 1;

export type Layer =
  | { entries: readonly Entry[] }
  /** The key says all about the entries, which are slow to make and gone after `write`. */
  | { key: string; withEntries: (write: (entries: readonly Entry[]) => Promise<Written>) => Promise<Written> };

interface Written {
  /** Of the compressed bytes, */
  digest: string;
  /** and of the archive inside. */
  diffId: string;
  size: number;
}
export interface StoredLayer extends Written {
  file: string;
}

export async function storeLayer(layer: Layer, cacheFolder: string): Promise<StoredLayer> {
  await mkdir(cacheFolder, { recursive: true });
  const content = 'key' in layer ? layer.key : await hashOf(complete(layer.entries));
  const file = join(cacheFolder, `${sha256(`${FORMAT} ${process.versions.zlib} ${content}`)}.tar.gz`);
  const cached = await readRecord(`${file}.json`);
  if (cached) {
    await utimes(file, new Date(), new Date()); // in use: `pruneLayers` leaves it
    return { ...cached, file };
  }
  const write = (entries: readonly Entry[]): Promise<Written> => writeLayer(complete(entries), file);
  const written = await ('key' in layer ? layer.withEntries(write) : write(layer.entries));
  await writeFile(`${file}.json.draft`, JSON.stringify(written));
  await rename(`${file}.json.draft`, `${file}.json`);
  return { ...written, file };
}

/** Removes layers that no image has used since the given time: each change of the bundles leaves one behind. */
export async function pruneLayers(cacheFolder: string, unusedSince: Date): Promise<void> {
  for (const name of await readdir(cacheFolder)) {
    const file = join(cacheFolder, name);
    if (name.endsWith('.json') || (await stat(file)).mtime >= unusedSince) continue;
    await rm(`${file}.json`, { force: true }); // first: a record stands for a file that is there
    await rm(file);
  }
}

async function readRecord(file: string): Promise<Written | undefined> {
  try {
    return JSON.parse(await readFile(file, 'utf8')) as Written;
  } catch {
    return undefined; // not made yet
  }
}

async function writeLayer(entries: readonly Entry[], file: string): Promise<Written> {
  const archive = createHash('sha256');
  const blob = createHash('sha256');
  const draft = `${file}.${process.pid}.draft`;
  await pipeline(Readable.from(tar(entries)), tee(archive), createGzip(), tee(blob), createWriteStream(draft));
  await rename(draft, file);
  const { size } = await stat(file);
  return { digest: `sha256:${blob.digest('hex')}`, diffId: `sha256:${archive.digest('hex')}`, size };
}

const tee = (hash: Hash): Transform =>
  new Transform({
    transform(chunk: Buffer, _encoding, done) {
      hash.update(chunk);
      done(null, chunk);
    },
  });

async function hashOf(entries: readonly Entry[]): Promise<string> {
  const hash = createHash('sha256');
  for (const entry of entries) {
    if (entry.kind !== 'file' || entry.content !== undefined) hash.update(JSON.stringify(entry));
    else hash.update(JSON.stringify({ ...entry, source: await hashOfFile(entry.source) }));
  }
  return hash.digest('hex');
}

async function hashOfFile(source: string): Promise<string> {
  const hash = createHash('sha256');
  await pipeline(createReadStream(source, { highWaterMark: 1 << 20 }), hash);
  return hash.digest('hex');
}

export const sha256 = (content: string): string => createHash('sha256').update(content).digest('hex');
