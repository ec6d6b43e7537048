import { FailedPreconditionError } from '@margay/errors';
import { commitKey } from '@margay/log';
import type { ObjectStore } from '@margay/platform/files';
import type { Db, Document, ObjectId } from 'mongodb';
import { numberOf, type StoredCommit } from '../commits/commit.mapper';
import type { MongoCommitStore } from '../commits/mongo-commit-store';
import type { BackupItem } from './backup-format';
import { piecesOf, type BackedUpFile } from './stored-bytes';

const BATCH = 100;

/** What follows from the logs, says who lives just now, or is so of this cluster: its pods of the day, its network. */
const LEFT_OUT = new Set(['sessions', 'runs', 'questions', 'instances', 'runners', 'leases', 'sandboxes', 'networkChecks', 'backups', 'restores']); // prettier-ignore

export const COMMITS = 'commits';
export const FILES = 'fs.files';
export const CHUNKS = 'fs.chunks';

/** Something to back up; where it is `last` of its kind a backup may be broken off behind it and go on later. */
export interface SourceItem extends BackupItem {
  /** Absent: goes with what follows. */
  behind?: { collection: string; id: unknown };
}

/** Commits first, blobs last, so that whatever a commit refers to comes later. */
export function isBefore(collection: string, other: string): boolean {
  const rank = (name: string): number => (name === COMMITS ? 0 : name === FILES ? 2 : 1);
  return rank(collection) === rank(other) ? collection < other : rank(collection) < rank(other);
}

/** Collections in the order of their backup. */
export async function backedUp(db: Db): Promise<string[]> {
  const found = await db.listCollections({}, { nameOnly: true }).toArray();
  const others = found.map(({ name }) => name).filter((name) => isPlain(name) && name !== COMMITS);
  return [COMMITS, ...others.sort(), FILES];
}

const isPlain = (name: string): boolean => !LEFT_OUT.has(name) && !name.startsWith('fs.') && !name.startsWith('system.'); // prettier-ignore

/** What a backup is made of. */
export interface BackupParts {
  db: Db;
  store: MongoCommitStore;
  /** Where bytes are that are not in the store. */
  objects?: ObjectStore | undefined;
}

/** Documents of one collection in the order of their keys, behind this one. */
export function itemsOf(parts: BackupParts, collection: string, after: unknown): AsyncIterable<SourceItem> {
  const { db, store } = parts;
  if (collection === COMMITS) return commits(db, store, after as string | undefined);
  if (collection === FILES) return blobs(parts, after);
  if (collection.endsWith('.files')) return files(parts, collection, after);
  return collection.endsWith('.unfinished') ? unfinished(db, collection, after) : plain(db, collection, after);
}

async function* plain(db: Db, collection: string, after: unknown): AsyncIterable<SourceItem> {
  const filter = after === undefined ? {} : { _id: { $gt: after as ObjectId } };
  const found = db.collection(collection).find(filter).sort({ _id: 1 }).batchSize(BATCH);
  for await (const document of found)
    yield { into: collection, document, behind: { collection, id: document._id as unknown } };
}

/** A page that was read while others were written may lack a commit before one that it has: it is looked for by its number. */
async function* commits(db: Db, store: MongoCommitStore, after: string | undefined): AsyncIterable<SourceItem> {
  let before = after;
  for await (const item of plain(db, COMMITS, after)) {
    const { _id: key, sessionId } = item.document as StoredCommit;
    const isSame = before?.startsWith(`${sessionId}.`) ?? false;
    for (let c = isSame ? numberOf(before ?? '') + 1 : 1; c < numberOf(key); c++) {
      const late = await store.storedNumber(sessionId, c);
      // What is really missing is for `verify` to tell.
      if (!late) break;
      yield { into: COMMITS, document: late as Document, behind: { collection: COMMITS, id: commitKey(sessionId, c) } };
    }
    yield item;
    before = key;
  }
}

/** Each blob as its pieces and then its file: one that is being removed meanwhile is left out. */
async function* blobs(parts: BackupParts, after: unknown): AsyncIterable<SourceItem> {
  const { db } = parts;
  for await (const { document } of plain(db, FILES, after)) {
    const file = document as BackedUpFile;
    if ((file['metadata'] as Document | undefined)?.['isDead']) continue;
    if (file.objectKey !== undefined) {
      yield* moved(parts, FILES, file);
      continue;
    }
    let bytes = 0;
    const pieces = db.collection(CHUNKS).find({ files_id: file._id }).sort({ n: 1 }).batchSize(4);
    for await (const piece of pieces) {
      bytes += (piece['data'] as { length(): number }).length();
      yield { into: CHUNKS, document: piece };
    }
    if (bytes === file.length) yield { into: FILES, document: file, behind: { collection: FILES, id: file._id } };
  }
}

/** Files whose pieces are a collection of their own, unless they are in a bucket. */
async function* files(parts: BackupParts, collection: string, after: unknown): AsyncIterable<SourceItem> {
  for await (const item of plain(parts.db, collection, after)) {
    const file = item.document as BackedUpFile;
    if (file.objectKey === undefined) yield item;
    else yield* moved(parts, collection, file);
  }
}

/** A file in a bucket as one of GridFS: a restore needs no bucket. */
async function* moved({ objects }: BackupParts, collection: string, file: BackedUpFile): AsyncIterable<SourceItem> {
  if (!objects) {
    const message = `Bytes of ${collection} are in a bucket; set MARGAY_BLOB_DRIVER to s3, and MARGAY_S3_BUCKET.`;
    throw new FailedPreconditionError('blob_store_missing', message);
  }
  let bytes = 0;
  for await (const piece of piecesOf(file, objects)) {
    bytes += (piece['data'] as { length(): number }).length();
    yield { into: collection.replace(/files$/, 'chunks'), document: piece };
  }
  const { objectKey: _, ...document } = file;
  if (bytes === file.length) yield { into: collection, document, behind: { collection, id: file._id } };
}

/** Without the bucket: whoever restores beside the old installation must not remove what is its. */
async function* unfinished(db: Db, collection: string, after: unknown): AsyncIterable<SourceItem> {
  for await (const { document, ...item } of plain(db, collection, after)) {
    const { objectKey: _, ...rest } = document;
    yield { ...item, document: rest };
  }
}
