import { SandboxInventory, type InventoriedWorkspace, type KnownSandbox } from '../driver/sandbox-inventory';
import type { Snapshots } from './snapshots';

/** With the files of a workspace its archives go, too. */
export class ArchivedInventory extends SandboxInventory {
  constructor(
    private readonly inventory: SandboxInventory,
    private readonly snapshots: Pick<Snapshots, 'removeAll'>,
  ) {
    super();
  }

  list(tenantId: string): Promise<KnownSandbox[]> {
    return this.inventory.list(tenantId);
  }

  find(tenantId: string, sandboxId: string): Promise<KnownSandbox | undefined> {
    return this.inventory.find(tenantId, sandboxId);
  }

  listOn(workspace: InventoriedWorkspace): Promise<KnownSandbox[]> {
    return this.inventory.listOn(workspace);
  }

  async removeFiles(workspace: InventoriedWorkspace): Promise<void> {
    await this.inventory.removeFiles(workspace);
    await this.snapshots.removeAll({ tenantId: workspace.tenantId, workspaceId: workspace._id });
  }
}
