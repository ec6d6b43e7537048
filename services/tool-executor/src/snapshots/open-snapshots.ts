import { randomUUID } from 'node:crypto';
import { LeasedSweep, LeaseRepository, type Logger } from '@margay/platform';
import type { Db } from 'mongodb';
import type { ToolExecutorConfig } from '../config';
import { WorkspaceRecords } from '../content/workspace-records';
import type { OpenDriver } from '../driver/open-driver';
import type { SandboxRegistry } from '../sandbox/sandbox-registry';
import { UtilitySandboxes } from '../utility/utility-sandboxes';
import { Dormancy } from './dormancy';
import { WorkspaceSnapshots } from './workspace-snapshots';

export interface OpenSnapshotsOptions {
  config: ToolExecutorConfig;
  db: Db | undefined;
  open: OpenDriver;
  registry: SandboxRegistry;
  logger: Logger;
}

export interface OpenSnapshots {
  workspaces: WorkspaceSnapshots;
  close(): Promise<void>;
}

/** What people ask of archives, and the sleep of volumes; undefined where no records of workspaces are kept. */
export function openSnapshots({ config, db, open, registry, logger }: OpenSnapshotsOptions): OpenSnapshots | undefined {
  if (!db) return undefined;
  const records = new WorkspaceRecords(db.collection('workspaces'));
  const utilities = new UtilitySandboxes(registry);
  const { snapshots, inventory, dropVolume } = open;
  const workspaces = new WorkspaceSnapshots({ records, snapshots, utilities, inventory });
  const ports = { records, workspaces, snapshots, utilities, inventory, logger };
  const dormantAfterDays = config.MARGAY_WORKSPACES_DORMANT_DAYS;
  const leases = new LeaseRepository(db.collection('leases'), randomUUID());
  const everyMs = config.MARGAY_WORKSPACE_SWEEP_SECONDS * 1_000;
  const dormancy = dropVolume && new Dormancy({ ...ports, dropVolume }, { dormantAfterDays });
  const work = dormancy && { name: 'workspace-dormancy', everyMs, sweep: () => dormancy.sweep() };
  const sweep = work && new LeasedSweep(work, { leases, logger });
  sweep?.start();
  return { workspaces, close: async () => sweep?.stop() };
}
