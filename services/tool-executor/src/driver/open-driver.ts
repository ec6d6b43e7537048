import type { SandboxDriver } from './sandbox-driver';
import type { SandboxLedger } from './sandbox-ledger';

/** A driver that is ready, with its records. */
export interface OpenDriver {
  driver: SandboxDriver;
  ledger: SandboxLedger;
  /** As configured: `process`, `kubernetes`. */
  name: string;
  /** What is weaker than it could be. */
  warning: string | undefined;
  /** Sandboxes that are to end have been released before. */
  close(): Promise<void>;
}
