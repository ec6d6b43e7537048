import { randomInt } from 'node:crypto';
import { faultPoint } from '@margay/platform';
import { isMargayError } from '@margay/errors';
import type { ClaimRequest } from '../driver/sandbox-driver';
import type { Endings } from './endings';
import type { Pod, Seen } from './kubernetes-api';
import { boundLabels, LABEL } from './labels';
import { detailOf } from './pods';
import type { SandboxContext } from './sandbox-context';
import { endpointOf, refOf } from './sandbox-ref';
import { claimKeyOf, type SandboxRow } from './sandbox-row';
import type { WorkspaceRow } from './workspace.repository';

/** Those who claim at once choose among so many, so that few of them meet. */
const CANDIDATES = 8;
const TRIES = 5;
const LABEL_TRIES = 3;

/** Binds a waiting sandbox to a session (cluster §1.3). */
export class WarmClaim {
  constructor(
    private readonly context: SandboxContext,
    private readonly endings: Endings,
  ) {}

  /** @returns the row, bound in the store; `taken`: the session has one; undefined: none was to be had */
  async bind(request: ClaimRequest, workspace: WorkspaceRow): Promise<SandboxRow | 'taken' | undefined> {
    const { sandboxes, settings } = this.context;
    const { tenantId, sessionId } = request;
    const specHash = settings.specHashOf(workspace.class);
    const [warm, attempt] = await Promise.all([
      sandboxes.oldestWarm(settings.poolOf(workspace.class), CANDIDATES),
      this.nextAttempt(request),
    ]);
    const usable = warm.filter((row) => row.specHash === specHash && this.isThere(row));
    for (let left = TRIES; left > 0 && usable.length > 0; left -= 1) {
      const [row] = usable.splice(randomInt(usable.length), 1) as [SandboxRow];
      const now = new Date();
      const bound = await sandboxes.change(row, {
        state: 'claimed',
        tenantId,
        sessionId,
        workspaceId: workspace._id,
        claimKey: claimKeyOf(sessionId, workspace.class),
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

  /** Tells the sandbox and the cluster whose it is. @returns the ready row; undefined: it was lost on the way */
  async finish(row: SandboxRow, request: ClaimRequest): Promise<SandboxRow | undefined> {
    const { sandboxes, settings, logger } = this.context;
    const told = await Promise.allSettled([
      request.greet(refOf(row), endpointOf(row)),
      this.label(row),
      this.giveVolume(row),
    ]);
    const failed = told.find((one) => one.status === 'rejected');
    if (failed) {
      if (isStale(failed.reason)) throw failed.reason;
      logger.warn({ sandboxId: row._id, err: failed.reason }, 'a waiting sandbox could not be claimed');
      await this.endings.end(row, 'lost', 'claim_failed');
      return undefined;
    }
    await faultPoint('sandbox.before-ready', () => detailOf(row));
    const ready = await sandboxes.change(row, { state: 'ready', readyAt: new Date(), grantKid: settings.grantKid });
    if (typeof ready === 'string') return undefined;
    await faultPoint('sandbox.after-ready', () => detailOf(row));
    void this.labelVolume(ready);
    return ready;
  }

  private isThere({ podName, podUid }: SandboxRow): boolean {
    const metadata = this.context.pods.get(podName)?.metadata;
    return metadata?.uid === podUid && metadata?.deletionTimestamp === undefined;
  }

  private async nextAttempt({ tenantId, sessionId }: ClaimRequest): Promise<number> {
    return ((await this.context.sandboxes.findLatest(tenantId, sessionId))?.attempt ?? 0) + 1;
  }

  /** The pod may change meanwhile, e.g. its conditions; it must not become another one. */
  private async label(row: SandboxRow): Promise<void> {
    const { api, pods } = this.context;
    const { tenantId, sessionId = '', workspaceId = '', podName: name, podUid: uid = '' } = row;
    const labels = boundLabels({ tenantId, sessionId, workspaceId });
    let pod: Pod | undefined = pods.get(name);
    if (isLabelled(pod, labels)) return;
    for (let left = LABEL_TRIES; ; left -= 1) {
      const seen: Seen = { name, uid, resourceVersion: pod?.metadata?.resourceVersion };
      try {
        await api.labelPod(seen, labels);
        return;
      } catch (error) {
        if (!isChanged(error) || left <= 1) throw error;
        pod = await api.findPod(name);
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
  private async labelVolume({ volume, workspaceId = '' }: SandboxRow): Promise<void> {
    if (!volume) return;
    const { api, logger } = this.context;
    await api
      .markVolume({ name: volume.pvcName, uid: volume.pvcUid }, { labels: { [LABEL.workspace]: workspaceId } })
      .catch((error: unknown) => logger.warn({ err: error, volume: volume.pvcName }, 'a volume could not be labelled'));
  }
}

function isLabelled(pod: Pod | undefined, labels: Record<string, string>): boolean {
  return Object.entries(labels).every(([name, value]) => pod?.metadata?.labels?.[name] === value);
}

function isChanged(error: unknown): boolean {
  return isMargayError(error) && error.reason === 'changed';
}

/** A later owner came meanwhile: the sandbox is theirs. */
function isStale(error: unknown): boolean {
  return isMargayError(error) && error.reason === 'stale_epoch';
}
