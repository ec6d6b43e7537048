import { utilityWorkspaceOf } from '../driver/workspace-key';

/** Before a session has it, while it has, and after; see cluster §1.2. */
export const LIVE_STATES = ['warming', 'warm', 'claimed', 'starting', 'ready', 'draining', 'suspending'] as const;
export const FINAL_STATES = ['released', 'failed', 'lost'] as const;
/** A session has or will have it. */
export const BOUND_STATES = ['claimed', 'starting', 'ready'] as const;

export type SandboxState = (typeof LIVE_STATES)[number] | (typeof FINAL_STATES)[number];

export interface VolumeRef {
  pvcName: string;
  pvcUid: string;
}

/** One row of the collection `sandboxes`. The row comes first, then its volume and pod. */
export interface SandboxRow {
  /** 20 hex digits. */
  _id: string;
  /** `system` while nobody has it. */
  tenantId: string;
  /** Unique: `pool/<id>`, `s/<session>/<class>`, `u/<workspace>`, or `x/<id>` once it is nobody's any more. */
  claimKey: string;
  class: string;
  pool: string;
  driver: 'kubernetes';
  state: SandboxState;
  namespace: string;
  podName: string;
  specHash: string;
  /** Makes ids of one session's sandboxes differ. */
  attempt: number;
  /** Which try of the same claim it is. */
  tries: number;
  createdAt: Date;
  rev: number;
  sessionId?: string;
  workspaceId?: string;
  podUid?: string;
  node?: string;
  ip?: string;
  tlsFingerprint?: string;
  /** PEM; whoever has it needs no second handshake to pin it. */
  tlsCertificate?: string;
  /** The newest key whose grants it takes. Absent in rows of older versions. */
  grantKid?: string;
  volume?: VolumeRef;
  /** Where the files of its workspace lie; absent: where its class says. */
  storage?: 'volume' | 'snapshot';
  /** Of a worktree: the folder of the volume that is shown, and the workspace whose volume it is. */
  subPath?: string;
  volumeOf?: string;
  /** A waiting one would have done, but there was none. */
  isPoolEmpty?: true;
  /** When its pod was made. */
  startedAt?: Date;
  readyAt?: Date;
  claimedAt?: Date;
  lastActiveAt?: Date;
  /** Where its files end with its pod: when the last archive of them was begun. */
  savedAt?: Date;
  /** Why there is no newer one. */
  unsaved?: string;
  /** Until then it is not stopped for being idle. */
  sparedUntil?: Date;
  endedAt?: Date;
  reason?: string;
  /** When a final row goes. */
  expiresAt?: Date;
}

export type NewSandboxRow = Omit<SandboxRow, 'rev' | 'driver' | 'createdAt'>;

export function isFinal({ state }: Pick<SandboxRow, 'state'>): boolean {
  return (FINAL_STATES as readonly string[]).includes(state);
}

/** Work without a session is done in one sandbox per workspace. */
export function claimKeyOf(sessionId: string, className: string): string {
  const workspaceId = utilityWorkspaceOf(sessionId);
  return workspaceId === undefined ? `s/${sessionId}/${className}` : `u/${workspaceId}`;
}
