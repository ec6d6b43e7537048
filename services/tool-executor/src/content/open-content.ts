import { randomUUID } from 'node:crypto';
import { USUAL_SANDBOX_CLASS } from '@margay/contracts';
import { LeasedSweep, LeaseRepository, type ServiceShared } from '@margay/platform';
import type { ObjectStore } from '@margay/platform/files';
import type { Db } from 'mongodb';
import type { ToolExecutorConfig } from '../config';
import type { OpenDriver } from '../driver/open-driver';
import type { IndexStore } from '../files/index-store';
import type { SandboxRegistry } from '../sandbox/sandbox-registry';
import { ContentBringer } from './content-bringer';
import { ContentOrders } from './content-orders';
import { Retention } from './retention';
import { WorkspaceTemplates } from './templates';
import { UploadStore } from './upload-store';
import { showWorkspaces } from './workspace-metrics';
import { WorkspaceRecords } from './workspace-records';
import { WorkspaceRemoval, type WorkspaceRemnant } from './workspace-removal';
import { WorkspacesService } from './workspaces.service';

export interface OpenContent {
  bringer: ContentBringer;
  /** Of a worktree that is removed. */
  forgetPart: (part: { tenantId: string; _id: string }) => Promise<void>;
  /** Once there is a registry. */
  serve(registry: Pick<SandboxRegistry, 'release'>): WorkspacesService;
  close(): Promise<void>;
}

export interface OpenContentOptions {
  config: ToolExecutorConfig;
  db: Db | undefined;
  /** Where bytes of uploads go, if not into GridFS. */
  objects: ObjectStore | undefined;
  /** What is known of a workspace, which goes with it. */
  index: Pick<IndexStore, 'remove'>;
  open: OpenDriver;
  logger: ServiceShared['logger'];
  management: ServiceShared['management'];
}

/** Records of workspaces, what they begin with and when they go; undefined without a store. */
export async function openContent(options: OpenContentOptions): Promise<OpenContent | undefined> {
  const { config, db, objects, index, open, logger, management } = options;
  if (!db) return undefined;
  const templates = WorkspaceTemplates.read(config.MARGAY_WORKSPACE_TEMPLATES_FILE);
  const { records, uploads, leases, remnants } = await openRecords(db, { objects, templates, index });
  showWorkspaces(management.registry, (state) => records.count(state));
  const bringer = new ContentBringer({
    records,
    uploads,
    orders: new ContentOrders(templates, uploads),
    snapshots: open.snapshots,
    hasRowsMade: open.name === 'kubernetes',
    instance: randomUUID(),
    maxBytes: config.MARGAY_WORKSPACE_MAX_BYTES,
    logger,
  });
  const retention = new Retention({
    sessionDays: config.MARGAY_WORKSPACE_SESSION_DAYS,
    projectDays: config.MARGAY_WORKSPACE_PROJECT_DAYS,
    sessionDaysByTenant: config.MARGAY_WORKSPACE_SESSION_DAYS_BY_TENANT,
  });
  let sweep: LeasedSweep | undefined;
  return {
    bringer,
    forgetPart: async (part) => {
      for (const remnant of remnants) await remnant.remove(part);
      await records.forgetPart(part);
    },
    serve: (registry) => {
      const release = (tenantId: string, sessionId: string) => registry.release(tenantId, sessionId);
      const { inventory, snapshots } = open;
      const removal = new WorkspaceRemoval({ records, inventory, release, remnants, retention, logger });
      const everyMs = config.MARGAY_WORKSPACE_SWEEP_SECONDS * 1_000;
      const work = {
        name: 'workspace-retention',
        everyMs,
        sweep: async () => (await uploads.collect()) + (await removal.sweep()),
      };
      sweep = new LeasedSweep(work, { leases, logger });
      sweep.start();
      const usual = { class: USUAL_SANDBOX_CLASS, storage: 'volume' };
      return new WorkspacesService({
        records,
        uploads,
        templates,
        retention,
        removal,
        inventory,
        snapshots,
        release,
        usual,
      });
    },
    close: async () => {
      bringer.close();
      await sweep?.stop();
    },
  };
}

interface RecordsParts extends Pick<OpenContentOptions, 'objects' | 'index'> {
  templates: WorkspaceTemplates;
}

async function openRecords(db: Db, { objects, index, templates: { blobs } }: RecordsParts) {
  const records = new WorkspaceRecords(db.collection('workspaces'));
  const uploads = new UploadStore(db, objects);
  for (const owner of [records, uploads]) await owner.createIndexes();
  const remnants: WorkspaceRemnant[] = [
    { name: 'uploads', remove: ({ tenantId, _id }) => uploads.removeOf(tenantId, _id, blobs) },
    { name: 'index', remove: ({ tenantId, _id }) => index.remove({ tenantId, workspaceId: _id }) },
  ];
  const leases = new LeaseRepository(db.collection('leases'), randomUUID());
  return { records, uploads, leases, remnants };
}
