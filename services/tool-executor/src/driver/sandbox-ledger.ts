import type { Epoch } from './epoch';
import type { SandboxRef } from './sandbox-driver';

/** What is remembered of sandboxes beyond their lives. */
export abstract class SandboxLedger {
  /** Other replicas use the same sandboxes: they do not end with this process, and the records tell which are idle. */
  abstract readonly isShared: boolean;
  /** The sandbox that a session has, or one that ended and left something behind. */
  abstract find(tenantId: string, sessionId: string): Promise<SandboxRef | undefined>;
  /** Whether it still is what was claimed, and so is its workspace. */
  abstract isUsable(ref: SandboxRef): Promise<boolean>;
  /** Sandboxes that an earlier life of this process left running. */
  abstract survivors(): SandboxRef[];
  /** The highest epoch known for a session, kept beyond the life of its sandbox. */
  abstract highestEpoch(tenantId: string, sessionId: string): Promise<Epoch | undefined>;
  abstract raiseEpoch(tenantId: string, sessionId: string, epoch: Epoch): Promise<void>;
  /** The session whose sandbox alone has the files of a workspace; undefined where anybody may use them. */
  async residentOf(_tenantId: string, _workspaceId: string): Promise<string | undefined> {
    return undefined;
  }
  /** Somebody uses it at present. */
  abstract touch(ref: SandboxRef): Promise<void>;
}
