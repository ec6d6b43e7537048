import type { FindCaller } from '../egress/egress-callers';
import type { SandboxConnections } from '../sandbox/sandbox-connections';
import type { SandboxDriver, SandboxRef } from './sandbox-driver';
import type { SandboxInventory } from './sandbox-inventory';
import type { SandboxLedger } from './sandbox-ledger';
import type { RestorePreparation } from '../kubernetes-driver/restore-preparation';
import type { Snapshots } from '../snapshots/snapshots';

/** A driver that is ready, with its records. */
export interface OpenDriver {
  driver: SandboxDriver;
  ledger: SandboxLedger;
  inventory: SandboxInventory;
  /** Where some of them are opened before they are claimed. */
  connections?: SandboxConnections;
  /** As configured: `process`, `kubernetes`. */
  name: string;
  /** What is weaker than it could be. */
  warning: string | undefined;
  /** Archives of workspaces. */
  snapshots: Snapshots;
  /** Where files may end with a sandbox: what brings them into the next one. */
  restoring?: RestorePreparation;
  /** Where workspaces are volumes: removes one that is no workspace's any more. */
  dropVolume?: (volume: { namespace: string; pvcName: string; pvcUid: string }) => Promise<void>;
  /** Where volumes can grow: told how full the workspace of a sandbox is. */
  noteSpace?: (ref: SandboxRef, percent: number) => Promise<unknown>;
  /** Where sandboxes speak to the egress proxy over a network. */
  findCaller?: FindCaller;
  /** Sandboxes that are to end have been released before. */
  close(): Promise<void>;
}
