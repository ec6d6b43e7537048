import { promisify } from 'node:util';
import { gunzip, gzip } from 'node:zlib';
import { LRUCache } from 'lru-cache';
import type { Collection } from 'mongodb';
import { isDuplicateKey, translateStoreError } from '@margay/platform';
import {
  IndexStore,
  type IndexContent,
  type IndexHead,
  type IndexPlace,
  type WorkspaceIndexDocument,
} from './index-store';

/** One row of the collection `workspaceIndex`. A row may be claimed for its first look before there is anything in it. */
interface IndexRow {
  _id: string;
  tenantId: string;
  revision?: number;
  at?: Date;
  refreshAt?: Date;
  content?: Omit<IndexContent, 'files'>;
  /** Paths, up to 256 KiB of them; more lie in parts. */
  files?: string[];
  /** How many rows of `workspaceIndexParts` hold the paths of this revision. */
  parts?: number;
}

/** A piece of the paths, compressed. */
interface PartRow {
  /** `<workspace>.<revision>.<number>`. */
  _id: string;
  tenantId: string;
  workspaceId: string;
  revision: number;
  bytes: Buffer;
}

const INLINE_MAX_BYTES = 256 * 1024;
const PART_BYTES = 512 * 1024;
const REMEMBERED = 100;
const TRIES = 3;

const pack = promisify(gzip);
const unpack = promisify(gunzip);

/** The collections `workspaceIndex` and `workspaceIndexParts`. */
export class MongoIndexStore extends IndexStore {
  /** Paths by workspace and revision: unpacking many costs more than looking a row up. */
  private readonly remembered = new LRUCache<string, readonly string[]>({ max: REMEMBERED });

  constructor(
    private readonly rows: Collection<IndexRow>,
    private readonly parts: Collection<PartRow>,
  ) {
    super();
  }

  async createIndexes(): Promise<void> {
    await this.rows.createIndex({ tenantId: 1 }, { name: 'tenant_v1' });
    await this.parts.createIndex({ workspaceId: 1, revision: 1 }, { name: 'workspace_v1' });
  }

  find(place: IndexPlace): Promise<WorkspaceIndexDocument | undefined> {
    return this.translated(async () => {
      for (let left = TRIES; left > 0; left -= 1) {
        const row = await this.rows.findOne(keyOf(place), { projection: { files: 0 } });
        const head = row ? headOf(row) : undefined;
        if (!head) return undefined;
        // Another revision may have taken the place of this one meanwhile.
        const files = await this.filesOf(head, row?.parts);
        if (files) return { ...head, files };
      }
      return undefined;
    });
  }

  heads(tenantId: string, workspaceIds: readonly string[]): Promise<Map<string, IndexHead>> {
    return this.translated(async () => {
      const wanted = { _id: { $in: [...workspaceIds] }, tenantId };
      const rows = await this.rows.find(wanted, { projection: { files: 0 } }).toArray();
      const heads = rows.flatMap((row) => headOf(row) ?? []);
      return new Map(heads.map((head) => [head.workspaceId, head]));
    });
  }

  save(document: WorkspaceIndexDocument): Promise<void> {
    return this.translated(async () => {
      const { tenantId, workspaceId, revision, atMs, content } = document;
      const files = [...document.files];
      const isInline = files.reduce((bytes, file) => bytes + Buffer.byteLength(file) + 8, 0) <= INLINE_MAX_BYTES;
      const parts = isInline ? 0 : await this.saveParts(document);
      const change = {
        $set: { tenantId, revision, at: new Date(atMs), content, parts, files: isInline ? files : [] },
      };
      const older = { $or: [{ revision: { $exists: false } }, { revision: { $lt: revision } }] };
      const { matchedCount } = await this.rows.updateOne({ ...keyOf(document), ...older }, change);
      // Without a row there is none to be older; with a newer one the insert finds it.
      const isNew = matchedCount === 0 && (await this.insert({ _id: workspaceId, ...change.$set }));
      const isLatest = matchedCount > 0 || isNew;
      const others = isLatest ? { $lt: revision } : revision;
      await this.parts.deleteMany({ workspaceId, tenantId, revision: others });
    });
  }

  confirm(place: IndexPlace, atMs: number): Promise<void> {
    return this.translated(async () => {
      const at = new Date(atMs);
      await this.rows.updateOne({ ...keyOf(place), at: { $lt: at } }, { $set: { at } });
    });
  }

  claimRefresh(place: IndexPlace, nowMs: number, everyMs: number): Promise<boolean> {
    return this.translated(async () => {
      const refreshAt = new Date(nowMs);
      const due = { $or: [{ refreshAt: { $exists: false } }, { refreshAt: { $lt: new Date(nowMs - everyMs) } }] };
      const { matchedCount } = await this.rows.updateOne({ ...keyOf(place), ...due }, { $set: { refreshAt } });
      if (matchedCount > 0) return true;
      return this.insert({ _id: place.workspaceId, tenantId: place.tenantId, refreshAt });
    });
  }

  remove({ tenantId, workspaceId }: IndexPlace): Promise<void> {
    return this.translated(async () => {
      await this.rows.deleteOne({ _id: workspaceId, tenantId });
      await this.parts.deleteMany({ workspaceId, tenantId });
    });
  }

  private async saveParts({ tenantId, workspaceId, revision, files }: WorkspaceIndexDocument): Promise<number> {
    const packed = await pack(files.join('\n'));
    const count = Math.ceil(packed.length / PART_BYTES);
    for (let number = 0; number < count; number += 1) {
      const bytes = packed.subarray(number * PART_BYTES, (number + 1) * PART_BYTES);
      const part = { tenantId, workspaceId, revision, bytes };
      await this.parts.updateOne({ _id: `${workspaceId}.${revision}.${number}` }, { $set: part }, { upsert: true });
    }
    return count;
  }

  /** Undefined where they have gone since. */
  private async filesOf(head: IndexHead, count = 0): Promise<readonly string[] | undefined> {
    const { tenantId, workspaceId, revision } = head;
    const key = `${tenantId} ${workspaceId} ${revision}`;
    const known = this.remembered.get(key);
    if (known) return known;
    const found = count === 0 ? await this.inlineOf(head) : await this.partsOf(head, count);
    if (found) this.remembered.set(key, found);
    return found;
  }

  private async inlineOf({ revision, ...place }: IndexHead): Promise<readonly string[] | undefined> {
    return (await this.rows.findOne({ ...keyOf(place), revision }, { projection: { files: 1 } }))?.files;
  }

  private async partsOf({ tenantId, workspaceId, revision }: IndexHead, count: number) {
    const ids = Array.from({ length: count }, (_, number) => `${workspaceId}.${revision}.${number}`);
    const rows = await this.parts.find({ _id: { $in: ids }, tenantId }, { promoteBuffers: true }).toArray();
    const bytes = new Map(rows.map((row) => [row._id, row.bytes]));
    const ordered = ids.flatMap((id) => bytes.get(id) ?? []);
    if (ordered.length < count) return undefined;
    return (await unpack(Buffer.concat(ordered))).toString().split('\n');
  }

  /** @returns false: there is one */
  private async insert(row: IndexRow): Promise<boolean> {
    try {
      await this.rows.insertOne(row);
      return true;
    } catch (error) {
      if (isDuplicateKey(error)) return false;
      throw error;
    }
  }

  private async translated<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      throw translateStoreError(error);
    }
  }
}

const keyOf = ({ tenantId, workspaceId }: IndexPlace) => ({ _id: workspaceId, tenantId });

function headOf({ _id: workspaceId, tenantId, revision, at, content }: IndexRow): IndexHead | undefined {
  if (revision === undefined || !at || !content) return undefined;
  return { tenantId, workspaceId, revision, atMs: at.getTime(), content };
}
