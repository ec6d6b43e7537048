import type { sandboxdPb } from '@margay/contracts';

/** Which workspace is meant. */
export interface IndexPlace {
  tenantId: string;
  /** 32 hex digits, see `workspaceIdOf`. */
  workspaceId: string;
}

/** What a sandbox said of a workspace, once it was looked through. */
export type IndexContent = sandboxdPb.ListFilesResponse;

/** The index of a workspace without its paths. */
export interface IndexHead extends IndexPlace {
  /** Of two indexes the one with the higher number is the later one: when the look began, milliseconds. */
  revision: number;
  /** When it was last known to be right, milliseconds. */
  atMs: number;
  content: Omit<IndexContent, 'files'>;
}

export interface WorkspaceIndexDocument extends IndexHead {
  files: readonly string[];
}

/** The collection `workspaceIndex` (cluster §2.4): what is known of workspaces, whether a sandbox runs there or not. */
export abstract class IndexStore {
  abstract find(place: IndexPlace): Promise<WorkspaceIndexDocument | undefined>;
  /** Of one tenant, without paths, by workspace; those that nobody has looked into are left out. */
  abstract heads(tenantId: string, workspaceIds: readonly string[]): Promise<Map<string, IndexHead>>;
  /** An older revision never replaces a newer one. */
  abstract save(document: WorkspaceIndexDocument): Promise<void>;
  /** It is still right. Nothing happens where there is none. */
  abstract confirm(place: IndexPlace, atMs: number): Promise<void>;
  /** Whether the caller is the one who looks anew: within `everyMs` only one is, whoever asks. */
  abstract claimRefresh(place: IndexPlace, nowMs: number, everyMs: number): Promise<boolean>;
  /** Nothing is known of it any more. */
  abstract remove(place: IndexPlace): Promise<void>;
}
