import type { ContentSource, ContentStatus, UploadFormat } from '@margay/contracts';
import type { WorkspaceRow, WorkspaceVolume } from '../kubernetes-driver/workspace.repository';
import type { WorkspaceSnapshot } from '../snapshots/archive-store';

/** A file that somebody sent. */
export interface StoredUpload {
  /** Of the file in the store. */
  fileId: string;
  sha256: string;
  bytes: number;
  format: UploadFormat;
  filename: string;
}

/** What a workspace begins with, and how far that is. */
export interface StoredContent {
  /** Another one for every wish. */
  id: string;
  source: ContentSource;
  /** Of the kind `upload`, once it has come. */
  upload?: StoredUpload;
  /** What lies there already goes. */
  replace: boolean;
  status: ContentStatus;
  /** Sandboxes that were lost while they brought it. */
  losses: number;
  /** While it runs: who brings it, and until when he is believed to. */
  owner?: string;
  until?: Date;
  reason?: string;
  message?: string;
  head?: string;
}

/** One row of the collection `workspaces`, whatever the driver (cluster §2.1). */
export interface WorkspaceDocument {
  /** 32 hex digits, see `workspaceIdOf`. */
  _id: string;
  tenantId: string;
  key: string;
  class: string;
  storage: string;
  /** `deleted`: only what is left to be remembered. */
  state: 'new' | 'live' | 'idle' | 'dormant' | 'waking' | 'deleting' | 'deleted';
  /** Whose session or project it is; absent where nobody said. */
  owner?: string;
  content?: StoredContent;
  /** Counts what brought content here, over all wishes. */
  contentAttempt?: number;
  volume?: WorkspaceVolume;
  /** The newest archive of its files. */
  snapshot?: WorkspaceSnapshot;
  holder?: WorkspaceRow['holder'];
  forkedFrom?: string;
  /** The workspace on whose volume it is a folder. */
  parentId?: string;
  /** It could not be archived: not tried again before. */
  archiveNotBefore?: Date;
  createdAt: Date;
  lastUsedAt: Date;
  /** Of a project that is gone. */
  retainUntil?: Date;
  legalHold?: boolean;
  /** Why it could not be deleted yet. */
  obstacle?: string;
  deletedAt?: Date;
  /** When a deleted one is forgotten. */
  expiresAt?: Date;
  rev: number;
}

/** Whether somebody may claim a sandbox on it. */
export function isUsable({ state }: Pick<WorkspaceDocument, 'state'>): boolean {
  return state !== 'deleting' && state !== 'deleted';
}
