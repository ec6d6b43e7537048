import { USUAL_SANDBOX_CLASS, type EventInput } from '@margay/contracts';
import type { Epoch } from './epoch';
import type { ClaimWorkspace } from './workspace-key';

/** `bwrap`: own user, processes, network and files; `pod`: a container; `uid`: an own user only; `none`: path checks only. */
export type Isolation = 'bwrap' | 'pod' | 'uid' | 'none';

export interface SandboxRef {
  sandboxId: string;
  tenantId: string;
  sessionId: string;
}

export interface SandboxEndpoint {
  /** A gRPC address. */
  address: string;
  /** Who a grant for it must name. */
  audience: string;
  /** Present where it speaks TLS; empty before the first contact. */
  tls?: { fingerprint?: string | undefined; certificate?: string | undefined };
}

/** What the first contact with a sandbox found. */
export interface Greeting {
  /** SHA-256 of its certificate in hex; empty where it has none. */
  tlsFingerprint: string;
  /** PEM. */
  tlsCertificate: string;
}

export interface ClaimRequest {
  tenantId: string;
  sessionId: string;
  workspace: ClaimWorkspace;
  /** One of `classes`; absent: the usual one. */
  sandboxClass?: string | undefined;
  /** The sandbox serves no lower epoch from its start. */
  minimum: Epoch;
  /** Says hello, which binds the sandbox to the session. For drivers with something to do at the same time; else the claimer does it. */
  greet: (ref: SandboxRef, endpoint: SandboxEndpoint) => Promise<Greeting>;
}

/** Of which class the sandbox of a claim, or of a grant, is to be. */
export function classOf({ sandboxClass = USUAL_SANDBOX_CLASS }: { sandboxClass?: string | undefined }): string {
  return sandboxClass;
}

/** Why a session has no sandbox yet (cluster §1.3). */
export type WaitReason =
  | 'warm_pool_empty'
  | 'image_pull'
  | 'unschedulable'
  | 'quota'
  | 'tenant_limit'
  | 'volume_attach'
  | 'restoring'
  | 'content'
  | 'node_lost'
  | 'starting';

export interface Refusal {
  state: string;
  reason: WaitReason;
  /** In the words of whoever refused. */
  message: string;
  /** Absent: waiting does not help. */
  retryAfterMs?: number;
  sandboxId?: string;
  attempt?: number;
  /** How many of its tenant come before it, and itself. */
  queuePosition?: number;
}

/** `known`: the session had it; `restore`: its files were brought from an archive. */
export type ClaimPath = 'warm' | 'cold' | 'known' | 'restore';

export type Claim = { ref: SandboxRef; path: ClaimPath } | { refusal: Refusal };

export interface ReleaseOptions {
  reason: string;
  /** Without its `journal` the next claim is another incarnation; `everything` also takes home and temporary files. */
  forget: 'nothing' | 'journal' | 'everything';
}

export interface PoolRequest {
  /** Where they wait; drivers without namespaces have one pool of a class. */
  namespace: string;
  class: string;
  specHash: string;
  target: number;
}

export interface PoolState {
  warm: number;
  warming: number;
  failing: number;
}

export type NoticeListener = (ref: SandboxRef, event: EventInput) => void;
export type LostListener = (ref: SandboxRef, reason: string) => void;

/** Where sandboxes come from (cluster §1.1). Verbs are idempotent by sandbox. */
export abstract class SandboxDriver {
  abstract readonly isolation: Isolation;
  /** Of which sandboxes can be here. */
  abstract readonly classes: readonly string[];
  /** Brings the number of sandboxes that wait for a session nearer to the target. */
  abstract ensurePool(request: PoolRequest): Promise<PoolState>;
  /**
   * The session's sandbox, started if there is none. Where that takes long it refuses for the moment; the same claim again
   * goes on where it was, whichever process makes it.
   */
  abstract claim(request: ClaimRequest): Promise<Claim>;
  abstract endpoint(ref: SandboxRef): Promise<SandboxEndpoint>;
  /** Ends a sandbox that nobody uses for now; the workspace stays. */
  abstract suspend(ref: SandboxRef, reason: string): Promise<{ snapshotId?: string }>;
  /** Puts the files of a sandbox away where they would end with it; it goes on. */
  async save(_ref: SandboxRef): Promise<void> {}
  /** Called when a session is to be told something of its workspace. */
  onNotice(_listener: NoticeListener): void {}
  /** A claim on the workspace that a suspended sandbox left. */
  abstract resume(request: ClaimRequest): Promise<Claim>;
  /** Ends it, if it runs. */
  abstract release(ref: SandboxRef, options: ReleaseOptions): Promise<void>;
  /** What ended it in its last life, if it began another one in the same place; undefined: nobody knows. */
  whyRestarted(_ref: SandboxRef): 'memory' | undefined {
    return undefined;
  }
  /** Called when a sandbox ended that nobody released. */
  abstract onLost(listener: LostListener): void;
}
