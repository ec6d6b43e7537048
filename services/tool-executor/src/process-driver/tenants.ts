import { FailedPreconditionError } from '@margay/errors';
import type { SandboxRecord } from './sandbox-records';

export interface Claimant {
  sandboxId: string;
  tenantId: string;
  /** Whether sandboxes on this machine hide tenants from each other. */
  isShared: boolean;
}

/** Refuses a sandbox of another tenant, and a second tenant where sandboxes do not hide them from each other. */
export function refuseForeign(records: readonly SandboxRecord[], { sandboxId, tenantId, isShared }: Claimant): void {
  const foreign = records.filter((record) => record.tenantId !== tenantId);
  if (foreign.some((record) => record.sandboxId === sandboxId)) {
    throw new FailedPreconditionError('sandbox_bound', 'The sandbox of this session belongs to another tenant.');
  }
  if (isShared || foreign.every((record) => record.processes.length === 0)) return;
  throw new FailedPreconditionError(
    'sandbox_single_tenant',
    "Several tenants at once need root and bubblewrap on this machine; end the other tenant's sessions first.",
  );
}
