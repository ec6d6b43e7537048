import type { FindCaller } from '../egress/egress-callers';
import type { SandboxDriver } from './sandbox-driver';
import type { SandboxInventory } from './sandbox-inventory';
import type { SandboxLedger } from './sandbox-ledger';

/** A driver that is ready, with its records. */
export interface OpenDriver {
  driver: SandboxDriver;
  ledger: SandboxLedger;
  inventory: SandboxInventory;
  /** As configured: `process`, `kubernetes`. */
  name: string;
  /** What is weaker than it could be. */
  warning: string | undefined;
  /** Where sandboxes speak to the egress proxy over a network. */
  findCaller?: FindCaller;
  /** Sandboxes that are to end have been released before. */
  close(): Promise<void>;
}
