import { MongoBulkWriteError, type Db, type Document } from 'mongodb';
import type { BackupItem, Manifest } from './backup-format';
import { readPart } from './part-reader';

interface RestoreRow {
  _id: string;
  tenantId: '_platform';
  /** Parts that are loaded whole. */
  parts: number;
  finishedAt?: Date;
}

const BATCH_DOCUMENTS = 500;
const BATCH_BYTES = 4 * 1024 * 1024;
/** Of a document whose size nobody measured. */
const DOCUMENT_BYTES = 1_024;
const DUPLICATE_KEY = 11_000;

export const restoresIn = (db: Db) => db.collection<RestoreRow>('restores');

/** Loads all parts; what is there already stays, so that it may be broken off and repeated. @returns documents read */
export async function loadBackup(db: Db, folder: string, manifest: Manifest, onPart: (done: number) => void) {
  const loaded = (await restoresIn(db).findOne({ _id: manifest.id }))?.parts ?? 0;
  for (const [index, part] of manifest.parts.entries()) {
    if (index < loaded) continue;
    const loader = new Loader(db);
    for await (const item of readPart(folder, part)) await loader.add(item);
    await loader.flush();
    await restoresIn(db).updateOne({ _id: manifest.id }, { $set: { parts: index + 1 } }, { upsert: true });
    onPart(index + 1);
  }
}

class Loader {
  private batch: Document[] = [];
  private bytes = 0;
  private into = '';

  constructor(private readonly db: Db) {}

  async add({ into, document }: BackupItem): Promise<void> {
    if (into !== this.into || this.batch.length >= BATCH_DOCUMENTS || this.bytes >= BATCH_BYTES) await this.flush();
    this.into = into;
    this.batch.push(document);
    this.bytes += sizeOf(document);
  }

  async flush(): Promise<void> {
    const { batch, into } = this;
    [this.batch, this.bytes] = [[], 0];
    if (batch.length === 0) return;
    try {
      await this.db.collection(into).insertMany(batch, { ordered: false });
    } catch (error) {
      if (!isRepeat(error)) throw error;
    }
  }
}

function isRepeat(error: unknown): boolean {
  if (!(error instanceof MongoBulkWriteError)) return false;
  return [error.writeErrors].flat().every(({ code }) => code === DUPLICATE_KEY);
}

/** Roughly: pieces of blobs and texts of commits are what is large. */
function sizeOf(document: Document): number {
  let bytes = DOCUMENT_BYTES;
  for (const value of Object.values(document).flat())
    bytes += typeof value === 'string' ? value.length : Buffer.isBuffer((value as { buffer?: unknown } | null)?.buffer) ? (value as { buffer: Buffer }).buffer.length : 0; // prettier-ignore
  return bytes;
}
