import type { RunGrant } from '@margay/contracts';

/** `bwrap`: own user, processes, network and files; `uid`: an own user only; `none`: path checks only. */
export type Isolation = 'bwrap' | 'uid' | 'none';

/** Generation of the store and epoch of the session. */
export interface Epoch {
  generation: number;
  epoch: number;
}

export interface ClaimRequest {
  tenantId: string;
  sessionId: string;
  workspace: RunGrant['workspace'];
  /** The sandbox serves no lower epoch from its start. */
  minimum: Epoch;
}

export interface SandboxRef {
  sandboxId: string;
  tenantId: string;
  sessionId: string;
}

export interface SandboxEndpoint {
  /** A gRPC address. */
  address: string;
  /** The workspace as commands inside see it. */
  root: string;
}

export interface ReleaseOptions {
  reason: string;
  /** Without its `journal` the next claim is another incarnation; `everything` also takes home and temporary files. */
  forget: 'nothing' | 'journal' | 'everything';
}

export type LostListener = (ref: SandboxRef, reason: string) => void;

/** Where sandboxes come from (cluster §1.1). Verbs are idempotent by sandbox. */
export abstract class SandboxDriver {
  abstract readonly isolation: Isolation;
  /** The session's sandbox, started if there is none; resolves when its socket is open. */
  abstract claim(request: ClaimRequest): Promise<SandboxRef>;
  /** The sandbox that a session has, had or will have. */
  abstract refOf(tenantId: string, sessionId: string): SandboxRef;
  /** Whether the workspace it was started on is still there. */
  abstract hasWorkspace(ref: SandboxRef): Promise<boolean>;
  abstract endpoint(ref: SandboxRef): Promise<SandboxEndpoint>;
  /** Ends it, if it runs. The workspace stays. */
  abstract release(ref: SandboxRef, options: ReleaseOptions): Promise<void>;
  /** Sandboxes that an earlier life of this process left running. */
  abstract survivors(): SandboxRef[];
  /** The highest epoch known for a session, kept beyond the life of its sandbox. */
  abstract highestEpoch(tenantId: string, sessionId: string): Epoch | undefined;
  abstract raiseEpoch(tenantId: string, sessionId: string, epoch: Epoch): Promise<void>;
  /** Called when a sandbox ended that nobody released. */
  abstract onLost(listener: LostListener): void;
}

export function isLowerEpoch(a: Epoch, b: Epoch): boolean {
  return a.generation === b.generation ? a.epoch < b.epoch : a.generation < b.generation;
}
