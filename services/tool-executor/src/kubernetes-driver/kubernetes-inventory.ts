import type { Collection, Filter } from 'mongodb';
import { translateStoreError } from '@margay/platform';
import { SandboxInventory, type InventoriedWorkspace, type KnownSandbox } from '../driver/sandbox-inventory';
import type { KubernetesApi } from './kubernetes-api';
import { LIVE_STATES, type SandboxRow } from './sandbox-row';

const MAX = 1_000;

/** The sandboxes of all replicas, and the volumes of their workspaces. */
export class KubernetesInventory extends SandboxInventory {
  constructor(
    private readonly rows: Collection<SandboxRow>,
    private readonly api: Pick<KubernetesApi, 'deleteVolume'>,
  ) {
    super();
  }

  list(tenantId: string): Promise<KnownSandbox[]> {
    return this.living({ tenantId });
  }

  async find(tenantId: string, sandboxId: string): Promise<KnownSandbox | undefined> {
    const row = await this.rows.findOne({ _id: sandboxId, tenantId }).catch(rethrow);
    return row ? knownOf(row) : undefined;
  }

  listOn({ _id, tenantId }: InventoriedWorkspace): Promise<KnownSandbox[]> {
    return this.living({ tenantId, workspaceId: _id });
  }

  async removeFiles({ volume }: InventoriedWorkspace): Promise<void> {
    if (!volume) return;
    const { namespace, pvcName: name, pvcUid: uid } = volume;
    await this.api.deleteVolume({ namespace, name, uid });
  }

  private async living(filter: Filter<SandboxRow>): Promise<KnownSandbox[]> {
    const living: Filter<SandboxRow> = { ...filter, state: { $in: [...LIVE_STATES] } };
    const rows = await this.rows.find(living).sort({ lastActiveAt: -1 }).limit(MAX).toArray().catch(rethrow);
    return rows.map(knownOf);
  }
}

function knownOf(row: SandboxRow): KnownSandbox {
  const { _id: sandboxId, tenantId, sessionId = '', workspaceId, driver, state, lastActiveAt, reason } = row;
  return { sandboxId, tenantId, sessionId, workspaceId, class: row.class, driver, state, lastActiveAt, reason };
}

function rethrow(error: unknown): never {
  throw translateStoreError(error);
}
