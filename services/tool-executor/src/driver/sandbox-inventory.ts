/** A sandbox as its driver knows it. */
export interface KnownSandbox {
  sandboxId: string;
  tenantId: string;
  sessionId: string;
  /** Undefined: it works in a folder that is no workspace of ours. */
  workspaceId: string | undefined;
  class: string;
  driver: string;
  state: string;
  lastActiveAt: Date | undefined;
  reason: string | undefined;
}

/** The workspace of which something is asked. */
export interface InventoriedWorkspace {
  _id: string;
  tenantId: string;
  key: string;
  volume?: { namespace: string; pvcName: string; pvcUid: string };
}

/** What a driver has: sandboxes that live, and the files of workspaces. */
export abstract class SandboxInventory {
  /** Those of a tenant that live, newest use first. */
  abstract list(tenantId: string): Promise<KnownSandbox[]>;
  /** Also one that has ended, as long as it is remembered. */
  abstract find(tenantId: string, sandboxId: string): Promise<KnownSandbox | undefined>;
  /** Those that live on a workspace. */
  abstract listOn(workspace: InventoriedWorkspace): Promise<KnownSandbox[]>;
  /** Removes the files of a workspace on which nothing runs any more. Idempotent. @throws if something is left */
  abstract removeFiles(workspace: InventoriedWorkspace): Promise<void>;
}
