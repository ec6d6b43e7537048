import { randomInt } from 'node:crypto';
import { faultPoint } from '@margay/platform';
import { isMargayError } from '@margay/errors';
import { classOf, type ClaimRequest } from '../driver/sandbox-driver';
import type { Endings } from './endings';
import type { Pod, Seen } from './kubernetes-api';
import { boundLabels, LABEL } from './labels';
import { detailOf } from './pods';
import type { SandboxContext } from './sandbox-context';
import { endpointOf, refOf } from './sandbox-ref';
import { claimKeyOf, type SandboxRow } from './sandbox-row';
import type { WorkspaceRow } from './workspace.repository';

/** Those who claim at once choose among so many, so that few of them meet. */
export const CANDIDATES = 8;
const TRIES = 5;
const LABEL_TRIES = 3;

/** Sandboxes that wait, and which of its session's one of them would be. */
export interface WarmOutlook {
  warm: readonly SandboxRow[];
  /** The last one that the session had, whatever became of it. */
  latest: SandboxRow | undefined;
  attempt: number;
}

/** Binds a waiting sandbox to a session (cluster §1.3). */
export class WarmClaim {
  constructor(
    private readonly context: SandboxContext,
    private readonly endings: Endings,
  ) {}

  /** What binding one has to know, read while nothing is decided yet. */
  async lookAhead(request: ClaimRequest): Promise<WarmOutlook> {
    const { tenantId, sessionId } = request;
    const { sandboxes, settings } = this.context;
    const className = classOf(request);
    const pool = settings.poolOf(className, settings.namespaceOf(tenantId));
    const [warm, latest] = await Promise.all([
      settings.class(className).warm.max === 0 ? [] : sandboxes.oldestWarm(pool, CANDIDATES),
      sandboxes.findLatest(tenantId, sessionId),
    ]);
    return { warm, latest, attempt: (latest?.attempt ?? 0) + 1 };
  }

  /** @returns the row, bound in the store; `taken`: the session has one; undefined: none was to be had */
  async bind(
    request: ClaimRequest,
    workspace: WorkspaceRow,
    { warm, attempt }: WarmOutlook,
  ): Promise<SandboxRow | 'taken' | undefined> {
    const { sandboxes, settings } = this.context;
    const { tenantId, sessionId } = request;
    const className = classOf(request);
    const specHash = settings.specHashOf(className);
    const usable = warm.filter((row) => row.specHash === specHash && this.isThere(row));
    for (let left = TRIES; left > 0 && usable.length > 0; left -= 1) {
      const [row] = usable.splice(randomInt(usable.length), 1) as [SandboxRow];
      const now = new Date();
      const bound = await sandboxes.change(row, {
        state: 'claimed',
        tenantId,
        sessionId,
        workspaceId: workspace._id,
        claimKey: claimKeyOf(sessionId, className),
        attempt,
        claimedAt: now,
        lastActiveAt: now,
      });
      if (bound === 'taken') return 'taken';
      if (bound === 'changed') continue;
      await faultPoint('sandbox.after-bind', () => detailOf(bound));
      return bound;
    }
    return undefined;
  }

  /**
   * Tells the sandbox and the cluster whose it is. Calls may go once the sandbox knows; the labels and the record follow.
   * @returns the row; undefined: it was lost on the way
   */
  async finish(row: SandboxRow, request: ClaimRequest): Promise<SandboxRow | undefined> {
    const labelled = this.label(row).then(
      () => undefined,
      (error: unknown) => error ?? new Error('the pod could not be labelled'),
    );
    const told = await Promise.allSettled([request.greet(refOf(row), endpointOf(row)), this.giveVolume(row)]);
    const failed = told.find((one) => one.status === 'rejected');
    if (!failed) {
      void this.settle(row, labelled);
      return row;
    }
    await labelled;
    if (isStale(failed.reason)) throw failed.reason;
    await this.giveUp(row, failed.reason);
    return undefined;
  }

  /** While the API server is away the row stays `claimed`; whoever claims or collects then goes on with it. */
  private async settle(row: SandboxRow, labelled: Promise<unknown>): Promise<void> {
    const { sandboxes, logger } = this.context;
    try {
      const error = await labelled;
      if (error !== undefined) {
        if (!isUnavailable(error)) return await this.giveUp(row, error);
        logger.warn({ sandboxId: row._id, err: error }, 'a claimed pod could not be labelled yet');
        return;
      }
      await faultPoint('sandbox.before-ready', () => detailOf(row));
      const ready = await sandboxes.change(row, { state: 'ready', readyAt: new Date() });
      if (typeof ready === 'string') return;
      await faultPoint('sandbox.after-ready', () => detailOf(row));
      await this.labelVolume(ready);
    } catch (error) {
      logger.warn({ sandboxId: row._id, err: error }, 'a claim was not recorded to its end');
    }
  }

  private async giveUp(row: SandboxRow, error: unknown): Promise<void> {
    this.context.logger.warn({ sandboxId: row._id, err: error }, 'a waiting sandbox could not be claimed');
    await this.endings.end(row, 'lost', 'claim_failed');
  }

  private isThere(row: SandboxRow): boolean {
    const metadata = this.context.pods.get(row)?.metadata;
    return metadata?.uid === row.podUid && metadata?.deletionTimestamp === undefined;
  }

  /** The pod may change meanwhile, e.g. its conditions; it must not become another one. */
  private async label(row: SandboxRow): Promise<void> {
    const { api, pods } = this.context;
    const { tenantId, sessionId = '', workspaceId = '', namespace, podName: name, podUid: uid = '' } = row;
    const labels = boundLabels({ tenantId, sessionId, workspaceId });
    let pod: Pod | undefined = pods.get(row);
    if (isLabelled(pod, labels)) return;
    for (let left = LABEL_TRIES; ; left -= 1) {
      const seen: Seen = { namespace, name, uid, resourceVersion: pod?.metadata?.resourceVersion };
      try {
        await api.labelPod(seen, labels);
        return;
      } catch (error) {
        if (!isChanged(error) || left <= 1) throw error;
        pod = await api.findPod(seen);
        if (pod?.metadata?.uid !== uid) throw error;
      }
    }
  }

  /** The volume it brought becomes the workspace; if that has one already, this sandbox is of no use. */
  private async giveVolume({ tenantId, workspaceId = '', volume, namespace }: SandboxRow): Promise<void> {
    if (!volume) return;
    const given = await this.context.workspaces.giveVolume(tenantId, workspaceId, { ...volume, namespace });
    if (given.pvcUid !== volume.pvcUid) throw new Error('the workspace has another volume');
  }

  /** Nobody waits for it; what is left undone, the collection does. */
  private async labelVolume({ namespace, volume, workspaceId = '' }: SandboxRow): Promise<void> {
    if (!volume) return;
    const { api, logger } = this.context;
    await api
      .markVolume(
        { namespace, name: volume.pvcName, uid: volume.pvcUid },
        { labels: { [LABEL.workspace]: workspaceId } },
      )
      .catch((error: unknown) => logger.warn({ err: error, volume: volume.pvcName }, 'a volume could not be labelled'));
  }
}

function isLabelled(pod: Pod | undefined, labels: Record<string, string>): boolean {
  return Object.entries(labels).every(([name, value]) => pod?.metadata?.labels?.[name] === value);
}

function isChanged(error: unknown): boolean {
  return isMargayError(error) && error.reason === 'changed';
}

function isUnavailable(error: unknown): boolean {
  return isMargayError(error) && error.code === 'UNAVAILABLE';
}

/** A later owner came meanwhile: the sandbox is theirs. */
function isStale(error: unknown): boolean {
  return isMargayError(error) && error.reason === 'stale_epoch';
}
