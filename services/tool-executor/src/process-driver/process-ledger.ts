import { isLowerEpoch, type Epoch } from '../driver/epoch';
import type { SandboxRef } from '../driver/sandbox-driver';
import { SandboxLedger } from '../driver/sandbox-ledger';
import { sandboxIdOf } from './sandbox-folder';
import type { SandboxRecords } from './sandbox-records';
import { folderId } from './workspaces';

/** The records of this machine's sandboxes, in its files. */
export class ProcessLedger extends SandboxLedger {
  readonly isShared = false;

  constructor(private readonly records: SandboxRecords) {
    super();
  }

  async find(tenantId: string, sessionId: string): Promise<SandboxRef> {
    return { sandboxId: sandboxIdOf(sessionId), tenantId, sessionId };
  }

  async isUsable({ sandboxId }: SandboxRef): Promise<boolean> {
    const record = this.records.find(sandboxId);
    return record?.folderId === undefined || record.folderId === (await folderId(record.folder));
  }

  survivors(): SandboxRef[] {
    return this.records.all().filter((record) => record.processes.length > 0);
  }

  async highestEpoch(tenantId: string, sessionId: string): Promise<Epoch | undefined> {
    const record = this.records.find(sandboxIdOf(sessionId));
    return record?.tenantId === tenantId ? record : undefined;
  }

  async raiseEpoch(tenantId: string, sessionId: string, epoch: Epoch): Promise<void> {
    const record = this.records.find(sandboxIdOf(sessionId));
    if (!record || record.tenantId !== tenantId || !isLowerEpoch(record, epoch)) return;
    await this.records.save({ ...record, ...epoch });
  }

  /** Its one user is this process, which remembers by itself. */
  async touch(): Promise<void> {}
}
