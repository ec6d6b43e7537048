/** Whose files an archive holds. */
export interface ArchiveOwner {
  tenantId: string;
  /** 32 hex digits. */
  workspaceId: string;
}

/** What is known of an archive (cluster §2.5). */
export interface Archive extends ArchiveOwner {
  /** Counts up within its workspace. */
  n: number;
  /** The archive it says the difference to; 0 = a full one. */
  base: number;
  /** Files, folders and links in it. */
  entries: number;
  /** Paths of the base that are gone. */
  deleted: readonly string[];
  bytes: number;
  sha256: string;
  /** Equal for equal trees. */
  revision: string;
  at: Date;
}

/** What the record of a workspace says of its newest archive. */
export type WorkspaceSnapshot = Pick<Archive, 'n' | 'at' | 'bytes' | 'sha256' | 'revision'>;

export function snapshotOf({ n, at, bytes, sha256, revision }: Archive): WorkspaceSnapshot {
  return { n, at, bytes, sha256, revision };
}

export type Chunks = AsyncIterable<Uint8Array>;

export const kindOf = ({ base }: Pick<Archive, 'base'>): 'full' | 'delta' => (base === 0 ? 'full' : 'delta');

/** `ws/<tenant>/<workspace>/<n>.{full,delta}.tar.zst` */
export function nameOf(archive: Pick<Archive, 'tenantId' | 'workspaceId' | 'n' | 'base'>): string {
  return `${prefixOf(archive)}${archive.n}.${kindOf(archive)}.tar.zst`;
}

export const prefixOf = ({ tenantId, workspaceId }: ArchiveOwner): string => `ws/${tenantId}/${workspaceId}/`;

/** Where archives of workspaces lie. One is seen whole or not at all. */
export abstract class ArchiveStore {
  /** What one archive may have. */
  abstract readonly maxBytes: number;
  /**
   * Stores bytes, then what is known of them at their end.
   * @throws ALREADY_EXISTS `archive_exists` if there is one of that number
   */
  abstract put(owner: ArchiveOwner, chunks: Chunks, known: () => Archive): Promise<Archive>;
  /** In the order of their numbers. */
  abstract list(owner: ArchiveOwner): Promise<Archive[]>;
  /** Breaks off with NOT_FOUND `archive_missing` where there are no bytes. */
  abstract read(archive: Archive): Chunks;
  abstract remove(archive: Archive): Promise<void>;
}
