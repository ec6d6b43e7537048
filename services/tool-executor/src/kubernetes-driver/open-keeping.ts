import type { Logger, ServiceShared } from '@margay/platform';
import type { ObjectStore } from '@margay/platform/files';
import type { Collection, Db } from 'mongodb';
import type { SandboxGrants } from '../sandbox/sandbox-grants';
import { MongoArchiveStore } from '../snapshots/mongo-archive-store';
import { SnapshotMetrics } from '../snapshots/snapshot-metrics';
import { Snapshots } from '../snapshots/snapshots';
import type { KubernetesDriver } from './kubernetes-driver';
import { PodArchives } from './pod-archives';
import { RestorePreparation } from './restore-preparation';
import type { SandboxContext } from './sandbox-context';
import { WorkspaceHolders } from './workspace-holders';
import { WorkspacePlaces } from './workspace-places';
import type { WorkspaceRow } from './workspace.repository';

export interface KeepingOptions {
  db: Db;
  /** Of one archive; absent: what the place of archives takes. */
  maxBytes: number | undefined;
  /** Where bytes of archives go, if not into GridFS. */
  objects: ObjectStore | undefined;
  grants: SandboxGrants;
  management: ServiceShared['management'];
  logger: Logger;
}

/** What keeps the files of workspaces in archives, tied to the driver. */
export async function openKeeping(context: SandboxContext, driver: KubernetesDriver, options: KeepingOptions) {
  const { db, maxBytes, objects, grants, management, logger } = options;
  const store = new MongoArchiveStore(db, maxBytes, objects);
  await store.createIndexes();
  const snapshots = new Snapshots({ store, logger, observer: new SnapshotMetrics(management.registry) });
  const holders = new WorkspaceHolders(db.collection('workspaces') as Collection<WorkspaceRow>);
  const { endings, ledger } = driver;
  const archives = new PodArchives(context, { snapshots, holders, endings, grants, ledger });
  const preparation = new RestorePreparation(context, {
    snapshots,
    holders,
    end: (row, reason) => endings.end(row, 'released', reason),
  });
  const places = new WorkspacePlaces(context, { snapshots, archives });
  driver.keeping = { archives, places, expectNothing: (sandboxId) => preparation.expectNothing(sandboxId) };
  return { store, snapshots, archives, preparation };
}
