import { LRUCache } from 'lru-cache';
import { isLowerEpoch, type Epoch } from '../driver/epoch';
import type { SandboxRef } from '../driver/sandbox-driver';
import { SandboxLedger } from '../driver/sandbox-ledger';
import type { EpochRepository } from './epoch.repository';
import { statusOf } from './pod-status';
import { podNameOf } from './pods';
import type { SandboxContext } from './sandbox-context';
import { refOf } from './sandbox-ref';

const TOUCH_MS = 30_000;
const REMEMBERED = 10_000;

/** What all replicas remember of sandboxes, in the document store. */
export class KubernetesLedger extends SandboxLedger {
  readonly isShared = true;
  /** Known to be stored; others may have stored higher ones. */
  private readonly raised = new LRUCache<string, Epoch>({ max: REMEMBERED });
  private readonly touched = new LRUCache<string, true>({ max: REMEMBERED, ttl: TOUCH_MS });

  constructor(
    private readonly context: Pick<SandboxContext, 'sandboxes' | 'pods' | 'workspaces'>,
    private readonly epochs: EpochRepository,
  ) {
    super();
  }

  async find(tenantId: string, sessionId: string): Promise<SandboxRef | undefined> {
    const row = await this.context.sandboxes.findClaimedBy(tenantId, sessionId);
    return row && refOf(row);
  }

  async isUsable({ sandboxId }: SandboxRef): Promise<boolean> {
    const pod = this.context.pods.named(podNameOf(sandboxId));
    return pod !== undefined && statusOf(pod).kind !== 'leaving';
  }

  /** Nobody owns them: whoever needs one finds it by its record. */
  survivors(): SandboxRef[] {
    return [];
  }

  highestEpoch(tenantId: string, sessionId: string): Promise<Epoch | undefined> {
    return this.epochs.find(tenantId, sessionId);
  }

  async raiseEpoch(tenantId: string, sessionId: string, epoch: Epoch): Promise<void> {
    await this.raise(tenantId, sessionId, epoch);
  }

  /** @returns the highest one known */
  async raise(tenantId: string, sessionId: string, epoch: Epoch): Promise<Epoch> {
    const key = `${tenantId}/${sessionId}`;
    const known = this.raised.get(key);
    if (known && !isLowerEpoch(known, epoch)) return known;
    const highest = await this.epochs.raise(tenantId, sessionId, epoch);
    this.raised.set(key, highest);
    return highest;
  }

  override async residentOf(tenantId: string, workspaceId: string): Promise<string | undefined> {
    const workspace = await this.context.workspaces.find(tenantId, workspaceId);
    const holder = workspace?.storage === 'snapshot' ? workspace.holder : undefined;
    const row = holder && (await this.context.sandboxes.find(holder.sandboxId));
    const isThere = row?.state === 'ready' || row?.state === 'claimed';
    return isThere && holder?.restoredAt ? holder.sessionId : undefined;
  }

  async touch({ sandboxId }: SandboxRef): Promise<void> {
    if (this.touched.has(sandboxId)) return;
    this.touched.set(sandboxId, true);
    await this.context.sandboxes.touch(sandboxId);
  }
}
