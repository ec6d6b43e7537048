import { rename } from 'node:fs/promises';
import path from 'node:path';
import { removeTree } from '@margay/toolbox';
import { classOf } from '../driver/sandbox-driver';
import { SandboxInventory, type InventoriedWorkspace, type KnownSandbox } from '../driver/sandbox-inventory';
import { workspaceIdOf } from '../driver/workspace-key';
import type { SandboxRecord, SandboxRecords } from './sandbox-records';

const PROJECT = /^p-([0-9a-f]{32})$/;
const SESSION = /^[\w-]+$/;

/** The sandboxes of this machine, and the folders of their workspaces. */
export class ProcessInventory extends SandboxInventory {
  private readonly base: string;

  constructor(
    home: string,
    private readonly records: Pick<SandboxRecords, 'all' | 'find'>,
  ) {
    super();
    this.base = path.join(home, 'workspaces');
  }

  async list(tenantId: string): Promise<KnownSandbox[]> {
    const living = this.records.all().filter((record) => record.tenantId === tenantId && isAlive(record));
    return living.sort((a, b) => b.lastUsedAt - a.lastUsedAt).map((record) => this.known(record));
  }

  async find(tenantId: string, sandboxId: string): Promise<KnownSandbox | undefined> {
    const record = this.records.find(sandboxId);
    return record?.tenantId === tenantId ? this.known(record) : undefined;
  }

  async listOn({ _id, tenantId }: InventoriedWorkspace): Promise<KnownSandbox[]> {
    return (await this.list(tenantId)).filter(({ workspaceId }) => workspaceId === _id);
  }

  /** Out of the way first: whoever claims it again meanwhile begins with an empty folder. */
  async removeFiles({ _id, key }: InventoriedWorkspace): Promise<void> {
    const folder = folderOf(key);
    const gone = path.join(this.base, `.gone-${_id}`);
    await removeTree(gone);
    if (folder === undefined) return;
    await rename(path.join(this.base, folder), gone).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOENT') throw error;
    });
    await removeTree(gone);
  }

  private known(record: SandboxRecord): KnownSandbox {
    const { sandboxId, tenantId, sessionId, lastUsedAt } = record;
    return {
      sandboxId,
      tenantId,
      sessionId,
      workspaceId: this.workspaceIdOf(record),
      class: classOf(record),
      driver: 'process',
      state: isAlive(record) ? 'ready' : 'released',
      lastActiveAt: new Date(lastUsedAt),
      reason: undefined,
    };
  }

  /** Of sandboxes in worktrees, it is that of their project. */
  private workspaceIdOf({ tenantId, folder }: SandboxRecord): string | undefined {
    const [name = '', ...below] = path.relative(this.base, folder).split(path.sep);
    if (name === '' || name === '..' || path.isAbsolute(name)) return undefined;
    const project = PROJECT.exec(name)?.[1];
    if (project !== undefined) return workspaceIdOf(tenantId, `p/${project}`);
    return below.length === 0 && SESSION.test(name) ? workspaceIdOf(tenantId, `s/${name}`) : undefined;
  }
}

function isAlive({ processes }: SandboxRecord): boolean {
  return processes.length > 0;
}

/** Undefined for what has no folder of its own. */
function folderOf(key: string): string | undefined {
  const [kind, id = ''] = [key.slice(0, 2), key.slice(2)];
  if (kind === 'p/' && PROJECT.test(`p-${id}`)) return `p-${id}`;
  return kind === 's/' && SESSION.test(id) ? id : undefined;
}
