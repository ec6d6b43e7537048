import { LRUCache } from 'lru-cache';
import { IndexStore, type IndexHead, type IndexPlace, type WorkspaceIndexDocument } from './index-store';

const WORKSPACES_MAX = 500;

/** For one process without a document store: what it forgets it looks for again. */
export class MemoryIndexStore extends IndexStore {
  private readonly documents = new LRUCache<string, WorkspaceIndexDocument>({ max: WORKSPACES_MAX });
  private readonly refreshes = new LRUCache<string, number>({ max: WORKSPACES_MAX });

  async find(place: IndexPlace): Promise<WorkspaceIndexDocument | undefined> {
    return this.documents.get(keyOf(place));
  }

  async heads(tenantId: string, workspaceIds: readonly string[]): Promise<Map<string, IndexHead>> {
    const found = workspaceIds.map((workspaceId) => this.documents.peek(keyOf({ tenantId, workspaceId })));
    return new Map(found.flatMap((document) => (document ? [[document.workspaceId, document]] : [])));
  }

  async save(document: WorkspaceIndexDocument): Promise<void> {
    const known = this.documents.peek(keyOf(document));
    if (!known || known.revision < document.revision) this.documents.set(keyOf(document), document);
  }

  async confirm(place: IndexPlace, atMs: number): Promise<void> {
    const known = this.documents.peek(keyOf(place));
    if (known && known.atMs < atMs) this.documents.set(keyOf(place), { ...known, atMs });
  }

  async claimRefresh(place: IndexPlace, nowMs: number, everyMs: number): Promise<boolean> {
    const last = this.refreshes.get(keyOf(place));
    if (last !== undefined && nowMs - last <= everyMs) return false;
    this.refreshes.set(keyOf(place), nowMs);
    return true;
  }

  async remove(place: IndexPlace): Promise<void> {
    this.documents.delete(keyOf(place));
    this.refreshes.delete(keyOf(place));
  }
}

const keyOf = ({ tenantId, workspaceId }: IndexPlace): string => `${tenantId} ${workspaceId}`;
