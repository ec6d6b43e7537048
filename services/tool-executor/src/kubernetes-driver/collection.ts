import { eachOf } from '@margay/platform';
import { UTILITY_IDLE_MS, utilityWorkspaceOf } from '../driver/workspace-key';
import type { Endings } from './endings';
import type { Pod, Seen, VolumeClaim } from './kubernetes-api';
import { isOwn, LABEL, ORPHANED_AT, selectorOf } from './labels';
import { PROBE_LABEL } from './network-pods';
import type { SandboxContext } from './sandbox-context';
import { isFinal, type SandboxRow } from './sandbox-row';

export interface CollectionOptions {
  idleMs: number;
  /** Told of each object that nobody owned. */
  onRemoved?: (kind: 'pod' | 'row' | 'volume') => void;
  /** Ends one that nobody uses for now; absent: by its end alone. */
  suspend?: (row: SandboxRow, reason: string) => Promise<boolean>;
  /** So long what has no counterpart may still get one; 60 s. */
  unpairedMs?: number;
  now?: () => number;
}

const UNPAIRED_MS = 60_000;
/** Pods that look at the network are removed by whoever made them, unless that has gone. */
const PROBE_MS = 345_000;
/** Of an end under way somebody else is taking care. */
const ENDING_MS = 10_000;
const MAX_LIFE_MS = 24 * 3_600_000;
const QUIET_MS = 60_000;
const VOLUME_KEPT_MS = 24 * 3_600_000;

/**
 * Brings records and cluster together again, both ways (cluster §1.8). Deletes only what carries our labels, by the UID it
 * has seen; concludes nothing from an API server that does not answer.
 */
export class Collection {
  /** When something without a counterpart was seen first, by this replica's clock. */
  private readonly unpaired = new Map<string, number>();
  private readonly now: () => number;
  private readonly unpairedMs: number;

  constructor(
    private readonly context: SandboxContext,
    private readonly endings: Endings,
    private readonly options: CollectionOptions,
  ) {
    this.now = options.now ?? Date.now;
    this.unpairedMs = options.unpairedMs ?? UNPAIRED_MS;
  }

  /** @returns how much was put right. @throws if there was no answer about any of the namespaces */
  async sweep(): Promise<number> {
    const { sandboxes, settings, logger } = this.context;
    // Rows first: a pod is made after its row.
    const rows = await sandboxes.listLive();
    const names = new Set([...settings.namespaces, ...rows.map(({ namespace }) => namespace)]);
    const seen = new Set<string>();
    const before = [...this.unpaired.keys()];
    const failures: unknown[] = [];
    let count = 0;
    for (const namespace of names) {
      try {
        count += await this.sweepIn(namespace, rows, seen);
      } catch (error) {
        logger.warn({ namespace, err: error }, 'sandboxes of a namespace could not be collected');
        failures.push(error);
      }
    }
    if (failures.length === names.size) throw failures[0];
    for (const key of before) if (!seen.has(key)) this.unpaired.delete(key);
    return count;
  }

  private async sweepIn(namespace: string, all: readonly SandboxRow[], seen: Set<string>): Promise<number> {
    const { api, settings } = this.context;
    const selector = selectorOf(settings.install);
    const rows = all.filter((row) => row.namespace === namespace);
    const [pods, volumes] = await Promise.all([
      api.listPods(namespace, selector),
      api.listVolumes(namespace, selector),
    ]);
    const own = pods.filter(({ metadata }) => isOwn(metadata?.labels, settings.install));
    let count = 0;
    const works = [
      ...rows.map((row) => () => this.row(row, own, seen)),
      ...own.map((pod) => () => this.pod(namespace, pod, rows, seen)),
      ...volumes.map((volume) => () => this.volume(namespace, volume, rows, seen)),
    ];
    await eachOf(works, async (work) => {
      if (await work()) count += 1;
    });
    return count;
  }

  private async row(row: SandboxRow, pods: readonly Pod[], seen: Set<string>): Promise<boolean> {
    const pod = pods.find(({ metadata }) => metadata?.name === row.podName);
    const isTheirs = pod !== undefined && (row.podUid === undefined || pod.metadata?.uid === row.podUid);
    if (row.state === 'draining' || row.state === 'suspending') return this.ending(row, pod);
    if (this.isIdle(row)) return this.suspend(row);
    if (isTheirs) return false;
    // A claim that waits for quota shows that it still does.
    const isWanted =
      row.podUid === undefined && this.now() - (row.lastActiveAt ?? row.createdAt).getTime() < this.unpairedMs;
    if (isWanted || !this.isUnpaired(`row ${row._id}`, seen)) return false;
    this.options.onRemoved?.('row');
    return this.endings.end(
      row,
      row.sessionId === undefined || row.state === 'starting' ? 'failed' : 'lost',
      'pod_gone',
    );
  }

  private suspend(row: SandboxRow): Promise<boolean> {
    const { suspend } = this.options;
    return suspend ? suspend(row, 'idle') : this.endings.end(row, 'released', 'idle');
  }

  /** One that its pod began, by leaving, ends with the pod; one that we began is gone on with. */
  private async ending(row: SandboxRow, pod: Pod | undefined): Promise<boolean> {
    const since = this.now() - (row.endedAt ?? row.createdAt).getTime();
    if (since < ENDING_MS || (row.reason === 'pod_leaving' && pod)) return false;
    await this.endings.remove(row, 'released');
    return true;
  }

  private isIdle({ state, sessionId = '', createdAt, lastActiveAt, claimedAt, sparedUntil }: SandboxRow): boolean {
    if (sparedUntil && sparedUntil.getTime() > this.now()) return false;
    if (state !== 'ready' && state !== 'claimed' && state !== 'starting') return false;
    const quietMs = this.now() - (lastActiveAt ?? claimedAt ?? createdAt).getTime();
    const isOld = this.now() - (claimedAt ?? createdAt).getTime() > MAX_LIFE_MS;
    const isUtility = utilityWorkspaceOf(sessionId) !== undefined;
    const idleMs = isUtility ? Math.min(UTILITY_IDLE_MS, this.options.idleMs) : this.options.idleMs;
    return quietMs > idleMs || (isOld && quietMs > QUIET_MS);
  }

  private async pod(
    namespace: string,
    { metadata }: Pod,
    rows: readonly SandboxRow[],
    seen: Set<string>,
  ): Promise<boolean> {
    const { name = '', uid = '', labels, deletionTimestamp, creationTimestamp } = metadata ?? {};
    const id = labels?.[LABEL.sandbox] ?? '';
    if (labels?.[PROBE_LABEL] && this.now() - new Date(creationTimestamp ?? 0).getTime() < PROBE_MS) return false;
    if (deletionTimestamp || rows.some((row) => row._id === id && isPodOf(row, uid))) return false;
    const row = await this.context.sandboxes.find(id);
    if (row && !isFinal(row) && isPodOf(row, uid)) return false;
    const isOver = row !== undefined && this.now() - (row.endedAt ?? row.createdAt).getTime() > ENDING_MS;
    if (!isOver && !this.isUnpaired(`pod ${uid}`, seen)) return false;
    await this.context.api.deletePod({ namespace, name, uid }, 0);
    this.options.onRemoved?.('pod');
    return true;
  }

  private async volume(
    namespace: string,
    { metadata }: VolumeClaim,
    rows: readonly SandboxRow[],
    seen: Set<string>,
  ): Promise<boolean> {
    const { name = '', uid = '', labels, annotations, deletionTimestamp } = metadata ?? {};
    if (deletionTimestamp) return false;
    const { api, workspaces, settings } = this.context;
    const found: Seen = { namespace, name, uid };
    const volume = { namespace, pvcName: name, pvcUid: uid };
    const tenants = settings.tenantsOf(namespace);
    const marked = labels?.[LABEL.workspace];
    const workspace = await workspaces.findByVolume(namespace, name);
    if (workspace) {
      // Store and cluster may have been restored from different days.
      if (workspace.volume?.pvcUid !== uid && marked === workspace._id)
        return workspaces.adopt(marked, volume, tenants);
      if (labels?.[LABEL.workspace] === workspace._id) return false;
      await api.markVolume(found, { labels: { [LABEL.workspace]: workspace._id } });
      return true;
    }
    if (rows.some((row) => row.podName === name || row.volume?.pvcName === name)) return false;
    if (marked !== undefined && (await workspaces.adopt(marked, volume, tenants))) return true;
    const since = annotations?.[ORPHANED_AT];
    if (since !== undefined) return this.removeVolume(found, since);
    if (!this.isUnpaired(`volume ${uid}`, seen)) return false;
    await api.markVolume(found, { annotations: { [ORPHANED_AT]: new Date(this.now()).toISOString() } });
    return true;
  }

  private async removeVolume(volume: Seen, since: string): Promise<boolean> {
    if (this.now() - Date.parse(since) < VOLUME_KEPT_MS) return false;
    await this.context.api.deleteVolume(volume);
    this.options.onRemoved?.('volume');
    return true;
  }

  /** Whether it has been without its counterpart for long enough. */
  private isUnpaired(key: string, seen: Set<string>): boolean {
    seen.add(key);
    const since = this.unpaired.get(key) ?? this.now();
    this.unpaired.set(key, since);
    return this.now() - since >= this.unpairedMs;
  }
}

function isPodOf({ podUid }: SandboxRow, uid: string): boolean {
  return podUid === undefined || podUid === uid;
}
