import { randomBytes } from 'node:crypto';
import { mkdir, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { FailedPreconditionError } from '@margay/errors';
import type { ObjectStore } from '@margay/platform/files';
import type { Db } from 'mongodb';
import type { MongoCommitStore } from '../commits/mongo-commit-store';
import { findManifest, idOfJson, jsonOfId, lineOf, writeManifest, type Manifest } from './backup-format';
import { backedUp, isBefore, itemsOf, type SourceItem } from './backup-source';
import { PartWriter } from './part-writer';

export interface BackupOptions {
  db: Db;
  store: MongoCommitStore;
  /** Where bytes are that are not in the store; the backup holds them as if they were. */
  objects?: ObjectStore | undefined;
  folder: string;
  /** Text of a part, after which the next one begins; default 64 MiB. */
  partBytes?: number;
  onPart?: (manifest: Manifest) => void;
}

const PART_BYTES = 64 * 1024 * 1024;

/**
 * Writes what can't be derived into a folder, beside a platform that serves: commits first and blobs last, so that each
 * reference resolves. Broken off, it goes on behind its last whole part when it is called again.
 * @throws FailedPreconditionError `backup_exists`
 */
export async function writeBackup(options: BackupOptions): Promise<Manifest> {
  const manifest = await beginOrResume(options);
  const writer = new BackupWriter(options, manifest);
  try {
    for (const collection of await remaining(options.db, manifest)) await writer.add(collection);
    return await writer.finish();
  } catch (error) {
    await writer.abandon();
    throw error;
  }
}

async function beginOrResume({ db, folder }: BackupOptions): Promise<Manifest> {
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const found = await findManifest(folder);
  if (found && found.finishedAt === undefined && found.database === db.databaseName) return withoutPartials(folder, found); // prettier-ignore
  if (found)
    throw new FailedPreconditionError('backup_exists', `${folder} holds another backup; name an empty folder.`);
  if ((await readdir(folder)).length > 0) throw new FailedPreconditionError('backup_exists', `${folder} is not empty; name another folder.`); // prettier-ignore
  const id = randomBytes(8).toString('hex');
  const manifest: Manifest = { format: 1, id, database: db.databaseName, startedAt: new Date().toISOString(), documents: {}, parts: [] }; // prettier-ignore
  await writeManifest(folder, manifest);
  return manifest;
}

async function withoutPartials(folder: string, manifest: Manifest): Promise<Manifest> {
  for (const name of await readdir(folder)) if (name.endsWith('.partial')) await rm(join(folder, name));
  return manifest;
}

/** Collections that are not in whole parts yet, the first of them perhaps in part. */
async function remaining(db: Db, { behind }: Manifest): Promise<string[]> {
  const all = await backedUp(db);
  return behind ? all.filter((collection) => !isBefore(collection, behind.collection)) : all;
}

class BackupWriter {
  private part: PartWriter | undefined;
  private counted: Record<string, number> = {};

  constructor(
    private readonly options: BackupOptions,
    private readonly manifest: Manifest,
  ) {}

  async add(collection: string): Promise<void> {
    const { partBytes = PART_BYTES } = this.options;
    const { behind } = this.manifest;
    const after = behind?.collection === collection ? idOfJson(behind.idJson) : undefined;
    let last: SourceItem['behind'];
    for await (const { behind: place, ...item } of itemsOf(this.options, collection, after)) {
      const part = (this.part ??= this.nextPart());
      await part.write(lineOf(item));
      this.counted[item.into] = (this.counted[item.into] ?? 0) + 1;
      last = place ?? last;
      if (place && part.textBytes >= partBytes) await this.closePart(place);
    }
    if (last) await this.closePart(last);
  }

  async finish(): Promise<Manifest> {
    const { behind: _, ...whole } = this.manifest;
    const finished = { ...whole, finishedAt: new Date().toISOString() };
    await writeManifest(this.options.folder, finished);
    return finished;
  }

  async abandon(): Promise<void> {
    await this.part?.abandon();
  }

  private nextPart(): PartWriter {
    const number = String(this.manifest.parts.length + 1).padStart(5, '0');
    return new PartWriter(this.options.folder, `part-${number}.ndjson.zst`);
  }

  private async closePart({ collection, id }: NonNullable<SourceItem['behind']>): Promise<void> {
    if (!this.part) return;
    const { manifest } = this;
    manifest.parts.push(await this.part.finish());
    this.part = undefined;
    for (const [name, count] of Object.entries(this.counted)) manifest.documents[name] = (manifest.documents[name] ?? 0) + count; // prettier-ignore
    this.counted = {};
    manifest.behind = { collection, idJson: jsonOfId(id) };
    await writeManifest(this.options.folder, manifest);
    this.options.onPart?.(manifest);
  }
}
