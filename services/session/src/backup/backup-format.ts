import { readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { FailedPreconditionError, NotFoundError } from '@margay/errors';
import { BSON, type Document } from 'mongodb';
import { z } from 'zod';

/** One line of a part. */
export interface BackupItem {
  /** Name of the collection. */
  into: string;
  document: Document;
}

const Part = z.object({
  file: z.string().regex(/^part-\d+\.ndjson\.zst$/),
  documents: z.number(),
  /** Of the file, as it lies there. */
  bytes: z.number(),
  sha256: z.string(),
});
export type Part = z.infer<typeof Part>;

const Manifest = z.object({
  format: z.literal(1),
  id: z.string(),
  database: z.string(),
  startedAt: z.string(),
  /** Absent while it is being written. */
  finishedAt: z.string().optional(),
  /** Documents by collection. */
  documents: z.record(z.string(), z.number()),
  parts: z.array(Part),
  /** Where an unfinished one goes on: behind this document. */
  behind: z.object({ collection: z.string(), idJson: z.string() }).optional(),
});
/** What `backup.json` says. */
export type Manifest = z.infer<typeof Manifest>;

const MANIFEST = 'backup.json';

/** @throws NotFoundError `backup_missing`; FailedPreconditionError `backup_unreadable` */
export async function readManifest(folder: string): Promise<Manifest> {
  const manifest = await findManifest(folder);
  if (!manifest) throw new NotFoundError('backup_missing', `There is no ${MANIFEST} in ${folder}; name the folder of a backup.`); // prettier-ignore
  return manifest;
}

/** @throws FailedPreconditionError `backup_unreadable` */
export async function findManifest(folder: string): Promise<Manifest | undefined> {
  const text = await readFile(join(folder, MANIFEST), 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return undefined;
    throw error;
  });
  if (text === undefined) return undefined;
  try {
    return Manifest.parse(JSON.parse(text));
  } catch (cause) {
    const message = `${join(folder, MANIFEST)} is damaged, or of another Margay; use another backup.`;
    throw new FailedPreconditionError('backup_unreadable', message, { cause });
  }
}

/** Whole or not at all. */
export async function writeManifest(folder: string, manifest: Manifest): Promise<void> {
  const path = join(folder, MANIFEST);
  await writeFile(`${path}.new`, `${JSON.stringify(manifest, null, 2)}\n`, { flush: true });
  await rename(`${path}.new`, path);
}

/** Keeps every type of the store: bytes, ids, times, widths of numbers. */
export function lineOf(item: BackupItem): string {
  return `${BSON.EJSON.stringify(item, { relaxed: false })}\n`;
}

/** @throws Error where it is no item */
export function itemOf(line: string): BackupItem {
  return BSON.EJSON.parse(line, { relaxed: false }) as BackupItem;
}

export const jsonOfId = (id: unknown): string => BSON.EJSON.stringify({ id }, { relaxed: false });
export const idOfJson = (json: string): unknown => (BSON.EJSON.parse(json, { relaxed: false }) as { id: unknown }).id;
