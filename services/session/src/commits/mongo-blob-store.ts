import { createHash } from 'node:crypto';
import { Readable } from 'node:stream';
import { NotFoundError } from '@margay/errors';
import { BlobStore } from '@margay/log';
import { isObjectMissing, StoredFiles, type ObjectStore, type StoredFile } from '@margay/platform/files';
import { LRUCache } from 'lru-cache';
import { MongoGridFSChunkError, ObjectId, type Collection, type Db } from 'mongodb';

const HOUR_MS = 3_600_000;
/** What was touched so lately needs no other touch: a commit that follows is stored long before anybody collects. */
const FRESH_MS = HOUR_MS / 2;
/** Unused for so long, a blob is looked at: whoever put it has stored his commit by now, or never will. */
const UNUSED_MS = 24 * HOUR_MS;
/** What is in use is looked at again after this. */
const RECHECK_MS = 7 * UNUSED_MS;
const TOUCHES_MAX = 20_000;
/** Before all ids. */
const START = new ObjectId('000000000000000000000000');

interface BlobMetadata {
  tenantId: string;
  /** When somebody put it last, or stored a commit that refers to it. */
  touchedAt: Date;
  /** From then on it is looked at whether it is in use. */
  sweepAt: Date;
  /** Every commit that refers to it names it in `blobs`; older blobs are never collected. */
  isTracked: true;
  /** Being removed: nobody finds it any more. */
  isDead?: true;
}

/** On both clocks: the monotonic one stands still while a machine sleeps, the other one may be set back. */
interface Moment {
  monotonicMs: number;
  wallMs: number;
}

type BlobFile = StoredFile<BlobMetadata>;

/**
 * Blobs in GridFS, or their bytes in a bucket of objects. The file name is `<tenant>/<sha256>`, so a tenant never reaches
 * another's bytes.
 */
export class MongoBlobStore extends BlobStore {
  private readonly stored: StoredFiles<BlobMetadata>;
  private readonly files: Collection<BlobFile>;
  private readonly chunks: Collection<{ _id: ObjectId; files_id: ObjectId; n: number }>;
  /** The last upload that was looked at whether it is whole. */
  private lookedAt = START;
  /** When this process touched a blob. */
  private readonly touches = new LRUCache<string, Moment>({ max: TOUCHES_MAX });

  constructor(db: Db, objects?: ObjectStore) {
    super();
    // Pieces of uploads that broke off `collectBroken` finds without a note.
    this.stored = new StoredFiles(db, 'fs', { objects, notesPieces: false });
    this.files = this.stored.files;
    this.chunks = db.collection('fs.chunks');
  }

  /**
   * Ours, and those that GridFS makes itself with its first upload: an index that is built while blobs are written may
   * miss some in the development store.
   */
  async createIndexes(): Promise<void> {
    await this.stored.createIndexes();
    await this.files.createIndex({ 'metadata.sweepAt': 1 }, { name: 'sweepAt_v1' });
  }

  async put(tenantId: string, bytes: Uint8Array): Promise<string> {
    const id = createHash('sha256').update(bytes).digest('hex');
    if (this.isFresh(tenantId, id) || (await this.touch(tenantId, id))) return id;
    // Two writers of one blob leave two equal files: either serves.
    const metadata: BlobMetadata = { tenantId, ...touchedNow(), isTracked: true };
    await this.stored.write({ tenantId, filename: name(tenantId, id), metadata }, Readable.from([bytes]));
    this.touches.set(name(tenantId, id), now());
    return id;
  }

  /** Notes that these are in use, where that was not noted a moment ago. @returns those that do not exist */
  async keep(tenantId: string, ids: readonly string[]): Promise<string[]> {
    const stale = ids.filter((id) => !this.isFresh(tenantId, id));
    const found = await Promise.all(stale.map((id) => this.touch(tenantId, id)));
    return stale.filter((_, index) => !found[index]);
  }

  async get(tenantId: string, id: string): Promise<Uint8Array> {
    const chunks: Buffer[] = [];
    for await (const chunk of this.read(tenantId, id, 0, undefined)) chunks.push(chunk);
    return Buffer.concat(chunks);
  }

  /** Size in bytes. @throws NotFoundError `blob_not_found` */
  async size(tenantId: string, id: string): Promise<number> {
    return (await this.find(tenantId, id)).length;
  }

  /** Bytes from `start` up to, but not including, `end`. */
  async *read(tenantId: string, id: string, start: number, end: number | undefined): AsyncIterable<Buffer> {
    yield* this.stored.read(await this.find(tenantId, id), start, end);
  }

  /**
   * Reads a blob whole. @param isNamed whether the commit that refers to it names it, which keeps it from being collected
   * @returns what is wrong with it, for people
   */
  async faultOf(tenantId: string, id: string, isNamed: boolean): Promise<string | undefined> {
    const files = await this.files.find({ filename: name(tenantId, id), 'metadata.isDead': { $ne: true } }).toArray();
    const [file] = files;
    if (!file) return `blob ${id} that it refers to is missing`;
    if (!isNamed && files.some(({ metadata }) => metadata?.isTracked))
      return `it refers to blob ${id} without naming it, so that the blob would be collected`;
    const hash = createHash('sha256');
    try {
      for await (const chunk of this.stored.read(file)) hash.update(chunk);
    } catch (error) {
      // A file with too few or too small pieces; an outage of the store says nothing about it.
      if (!(error instanceof MongoGridFSChunkError || isObjectMissing(error))) throw error;
      return `blob ${id} that it refers to is not whole`;
    }
    return hash.digest('hex') === id ? undefined : `blob ${id} that it refers to was changed`;
  }

  /**
   * Removes blobs that have been unused for a day, a bounded number of them. Whoever is about to refer to one touches it
   * first, so it stays: what is removed is marked in one write that fails if it was touched after this looked at it.
   * @returns how many were removed
   */
  async collect(
    isReferenced: (tenantId: string, id: string) => Promise<boolean>,
    limit: number,
    nowMs = Date.now(),
  ): Promise<number> {
    const due = await this.files
      .find({ 'metadata.sweepAt': { $lte: new Date(nowMs) }, 'metadata.isTracked': true, ...this.stored.reachable })
      .sort({ 'metadata.sweepAt': 1 })
      .limit(limit)
      .toArray();
    let removed = 0;
    for (const { _id, filename, metadata } of due) {
      if (!metadata) continue;
      const { tenantId, touchedAt } = metadata;
      if (!metadata.isDead && (await isReferenced(tenantId, filename.slice(tenantId.length + 1)))) {
        await this.files.updateOne({ _id }, { $set: { 'metadata.sweepAt': new Date(nowMs + RECHECK_MS) } });
        continue;
      }
      const untouched = { _id, 'metadata.touchedAt': touchedAt };
      // Where its bytes are may have changed since it was read.
      const marked = await this.files.findOneAndUpdate(untouched, { $set: { 'metadata.isDead': true } });
      if (!marked) continue;
      await this.stored.removeBytes(marked);
      await this.files.deleteOne({ _id });
      removed += 1;
    }
    return removed;
  }

  /**
   * Removes bytes of uploads that were broken off a day ago: they belong to no file. Looks at a bounded number of uploads
   * behind the last one it looked at, round and round.
   * @returns how many were removed
   */
  async collectBroken(limit: number, nowMs = Date.now()): Promise<number> {
    const before = ObjectId.createFromTime(Math.floor((nowMs - UNUSED_MS) / 1_000));
    const ids = await this.uploadsAfter(this.lookedAt, before, limit);
    this.lookedAt = ids.length < limit ? START : (ids.at(-1) ?? START);
    const files = await this.files
      .find({ _id: { $in: ids } })
      .project<{ _id: ObjectId }>({ _id: 1 })
      .toArray();
    const whole = new Set(files.map(({ _id }) => _id.toHexString()));
    const broken = ids.filter((id) => !whole.has(id.toHexString()));
    for (const id of broken) await this.chunks.deleteMany({ files_id: id });
    return broken.length + (await this.stored.collect(nowMs));
  }

  /** Ids of uploads of which anything is there, in their order; pieces are written at once, so any may be missing. */
  private async uploadsAfter(after: ObjectId, before: ObjectId, limit: number): Promise<ObjectId[]> {
    const found: ObjectId[] = [];
    while (found.length < limit) {
      const behind = { files_id: { $gt: found.at(-1) ?? after, $lt: before } };
      const next = await this.chunks.findOne(behind, { sort: { files_id: 1 }, projection: { files_id: 1 } });
      if (!next) break;
      found.push(next.files_id);
    }
    return found;
  }

  private isFresh(tenantId: string, id: string): boolean {
    const touched = this.touches.get(name(tenantId, id));
    if (!touched) return false;
    const { monotonicMs, wallMs } = now();
    return Math.max(monotonicMs - touched.monotonicMs, wallMs - touched.wallMs) < FRESH_MS;
  }

  /** @returns whether it exists */
  private async touch(tenantId: string, id: string): Promise<boolean> {
    const filename = name(tenantId, id);
    const { touchedAt, sweepAt } = touchedNow();
    const set = { 'metadata.touchedAt': touchedAt, 'metadata.sweepAt': sweepAt };
    const touched = await this.files.updateMany({ filename, 'metadata.isDead': { $ne: true } }, { $set: set });
    if (touched.matchedCount > 0) this.touches.set(filename, now());
    return touched.matchedCount > 0;
  }

  private async find(tenantId: string, id: string): Promise<BlobFile> {
    const file = await this.files.findOne({ filename: name(tenantId, id), 'metadata.isDead': { $ne: true } });
    if (!file) throw new NotFoundError('blob_not_found', `blob ${id} not found`);
    return file;
  }
}

function now(): Moment {
  return { monotonicMs: performance.now(), wallMs: Date.now() };
}

function touchedNow(): Pick<BlobMetadata, 'touchedAt' | 'sweepAt'> {
  const nowMs = Date.now();
  return { touchedAt: new Date(nowMs), sweepAt: new Date(nowMs + UNUSED_MS) };
}

function name(tenantId: string, id: string): string {
  return `${tenantId}/${id}`;
}
