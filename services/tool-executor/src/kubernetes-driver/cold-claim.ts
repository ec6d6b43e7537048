import { faultPoint } from '@margay/platform';
import { isMargayError } from '@margay/errors';
import {
  classOf,
  type Claim,
  type ClaimRequest,
  type Greeting,
  type Refusal,
  type WaitReason,
} from '../driver/sandbox-driver';
import type { Endings } from './endings';
import type { Pod } from './kubernetes-api';
import { reasonOf, statusOf, type PodStatus } from './pod-status';
import { boundId, detailOf, podNameOf, type Pods } from './pods';
import type { QuotaPause } from './quota-pause';
import type { SandboxContext } from './sandbox-context';
import { endpointOf, refOf } from './sandbox-ref';
import { claimKeyOf, type SandboxRow } from './sandbox-row';
import type { WorkspaceRow } from './workspace.repository';

/** One claim waits so long at most before it says what it waits for; the next one goes on. */
const LOOK_MS = 2_500;
/** The daemon's port opens a moment after its container runs. */
const GREET_EVERY_MS = 100;
/** A new pod may not have been seen yet. */
const UNSEEN_MS = 10_000;
const ATTEMPT_MS = 120_000;
const RETRY_FIRST_MS = 5_000;
const RETRY_MAX_MS = 60_000;
/** Tries that lie further back do not count. */
const FORGET_TRIES_MS = 900_000;

/** Starts a pod for a session and sees it through, whichever process began it (cluster §1.3). */
export class ColdClaim {
  constructor(
    private readonly context: SandboxContext,
    private readonly parts: { pods: Pods; endings: Endings; quota: QuotaPause },
  ) {}

  /** Stores that the session will have one. @returns undefined if it has one already */
  async begin(request: ClaimRequest, workspace: WorkspaceRow): Promise<SandboxRow | Refusal | undefined> {
    const { sandboxes, settings } = this.context;
    const { tenantId, sessionId } = request;
    const latest = await sandboxes.findLatest(tenantId, sessionId);
    const isRetry = latest?.state === 'failed' && ageOf(latest.endedAt) < FORGET_TRIES_MS;
    const waitMs = isRetry ? retryAfter(latest.tries) - ageOf(latest.endedAt) : 0;
    if (latest && waitMs > 0) return { ...refusalOf(latest), message: latest.reason ?? '', retryAfterMs: waitMs };
    const className = classOf(request);
    const claimKey = claimKeyOf(sessionId, className);
    const attempt = (latest?.attempt ?? 0) + 1;
    const id = boundId(claimKey, attempt);
    // Beside its volume, also where new ones of the tenant are made elsewhere by now.
    const namespace = workspace.volume?.namespace ?? settings.namespaceOf(tenantId);
    const now = new Date();
    return sandboxes.insertClaimed({
      _id: id,
      tenantId,
      sessionId,
      workspaceId: workspace._id,
      ...(workspace.subPath === undefined ? {} : { subPath: workspace.subPath, volumeOf: workspace.parentId ?? '' }),
      claimKey,
      ...(!workspace.volume && settings.class(className).warm.max > 0 ? { isPoolEmpty: true } : {}),
      class: className,
      storage: workspace.storage,
      pool: settings.poolOf(className, namespace),
      state: 'starting',
      namespace,
      podName: podNameOf(id),
      specHash: settings.specHashOf(className),
      grantKid: settings.grantKid,
      attempt,
      tries: isRetry ? latest.tries + 1 : 1,
      claimedAt: now,
      lastActiveAt: now,
    });
  }

  /** @returns undefined when the claim has to look again at what the session has */
  async goOn(row: SandboxRow, request: ClaimRequest, workspace: WorkspaceRow): Promise<Claim | undefined> {
    if (workspace.volume && workspace.volume.namespace !== row.namespace) {
      await this.parts.endings.end(row, 'released', 'the volume of the workspace is elsewhere');
      return undefined;
    }
    const refused = this.parts.quota.refusalIn(row.namespace);
    if (refused && row.podUid === undefined) return { refusal: { ...refusalOf(row), ...refused } };
    await this.context.sandboxes.touch(row._id);
    let made: SandboxRow | undefined;
    try {
      made = await this.parts.pods.ensure(row, workspace.volume);
    } catch (error) {
      return this.notMade(row, error);
    }
    if (!made) return undefined;
    this.parts.quota.clear(row.namespace);
    if (!(await this.giveVolume(made))) {
      await this.parts.endings.end(made, 'released', 'the workspace has another volume');
      return undefined;
    }
    return this.untilReady(made, request);
  }

  private async untilReady(made: SandboxRow, request: ClaimRequest): Promise<Claim | undefined> {
    const until = performance.now() + LOOK_MS;
    let row = made;
    let status = await this.look(row);
    for (; performance.now() < until; status = await this.look(row)) {
      if (status.kind === 'running' && row.ip !== status.ip) {
        // The egress proxy knows sandboxes by their addresses, and is asked as soon as the sandbox hears whose it is.
        const known = await this.context.sandboxes.change(row, { ip: status.ip });
        if (known === 'changed' || known === 'taken') return undefined;
        row = known;
      }
      if (status.kind === 'leaving') {
        await this.parts.endings.end(row, 'failed', status.message);
        return undefined;
      }
      if (status.kind === 'broken') return this.giveUp(row, status);
      const ready = status.kind === 'running' ? await this.greet(row, status.node, request) : undefined;
      if (ready === 'changed') return undefined;
      if (ready) return { ref: refOf(ready), path: 'cold' };
      await this.context.pods.change(
        row.podName,
        status.kind === 'running' ? GREET_EVERY_MS : until - performance.now(),
      );
    }
    return this.stillWaiting(row, status);
  }

  private async greet(
    row: SandboxRow,
    node: string | undefined,
    request: ClaimRequest,
  ): Promise<SandboxRow | 'changed' | undefined> {
    const { sandboxes } = this.context;
    let greeting: Greeting;
    try {
      greeting = await request.greet(refOf(row), endpointOf(row));
    } catch (error) {
      // It does not listen yet.
      if (isMargayError(error) && (error.code === 'UNAVAILABLE' || error.code === 'DEADLINE_EXCEEDED'))
        return undefined;
      throw error;
    }
    await faultPoint('sandbox.before-ready', () => detailOf(row));
    const now = new Date();
    const { tlsFingerprint, tlsCertificate } = greeting;
    const found = { tlsFingerprint, tlsCertificate, readyAt: now, lastActiveAt: now };
    const ready = await sandboxes.change(row, { state: 'ready', ...found, ...(node === undefined ? {} : { node }) });
    if (ready === 'changed' || ready === 'taken') return 'changed';
    await faultPoint('sandbox.after-ready', () => detailOf(row));
    return ready;
  }

  private async look(row: SandboxRow): Promise<PodStatus> {
    const seen: Pod | undefined = this.context.pods.get(row);
    if (seen && seen.metadata?.uid === row.podUid) return statusOf(seen);
    const isNew = ageOf(row.startedAt) < UNSEEN_MS;
    const there =
      isNew && this.context.pods.failureIn(row.namespace) === undefined ? undefined : await this.parts.pods.find(row);
    if (there) return statusOf(there);
    if (isNew) return { kind: 'waiting', reason: 'starting', message: 'the pod is being made' };
    return { kind: 'leaving', message: 'the pod is gone' };
  }

  private async stillWaiting(row: SandboxRow, status: PodStatus): Promise<Claim> {
    if (ageOf(row.startedAt) > ATTEMPT_MS) {
      const message = 'message' in status ? status.message : 'its daemon does not answer';
      await this.parts.endings.end(row, 'failed', message);
      return { refusal: { ...refusalOf(row), state: 'failed', message, retryAfterMs: retryAfter(row.tries) } };
    }
    const known = status.kind === 'waiting' ? status : { reason: 'starting' as const, message: 'its daemon starts' };
    const told = known.reason === 'starting' ? await this.eventOf(row) : undefined;
    const { reason, message } = told ?? known;
    const why = reason === 'starting' ? refusalOf(row).reason : reason;
    return { refusal: { ...refusalOf(row), reason: why, message, retryAfterMs: 0 } };
  }

  private async eventOf({
    namespace,
    podUid,
  }: SandboxRow): Promise<{ reason: WaitReason; message: string } | undefined> {
    if (podUid === undefined) return undefined;
    const { api, logger } = this.context;
    const events = await api.eventsOf(namespace, podUid).catch((error: unknown) => {
      logger.debug({ err: error }, 'events cannot be read');
      return [];
    });
    return reasonOf(events);
  }

  /** The volume that came with its first pod is where the workspace's files lie. @returns false: they lie elsewhere */
  private async giveVolume({ tenantId, workspaceId = '', volume, namespace, subPath }: SandboxRow): Promise<boolean> {
    if (!volume || subPath !== undefined) return true;
    const given = await this.context.workspaces.giveVolume(tenantId, workspaceId, { ...volume, namespace });
    return given.pvcUid === volume.pvcUid;
  }

  private async notMade(row: SandboxRow, error: unknown): Promise<Claim> {
    if (!isMargayError(error)) throw error;
    if (error.reason === 'quota')
      return { refusal: { ...refusalOf(row), ...this.parts.quota.begin(row.namespace, error.message) } };
    if (error.code === 'UNAVAILABLE')
      return { refusal: { ...refusalOf(row), message: error.message, retryAfterMs: RETRY_FIRST_MS } };
    return this.giveUp(row, { reason: 'starting', message: error.message });
  }

  /** Asking again would end the same way. */
  private async giveUp(row: SandboxRow, { reason, message }: { reason: WaitReason; message: string }): Promise<Claim> {
    await this.parts.endings.end(row, 'failed', message);
    return { refusal: { ...refusalOf(row), state: 'failed', reason, message } };
  }
}

function refusalOf({ _id: sandboxId, state, tries: attempt, isPoolEmpty }: SandboxRow): Refusal {
  const reason = isPoolEmpty ? 'warm_pool_empty' : 'starting';
  return { state, reason, message: 'The sandbox is being started.', sandboxId, attempt };
}

function retryAfter(tries: number): number {
  return Math.min(RETRY_FIRST_MS * 2 ** (tries - 1), RETRY_MAX_MS);
}

function ageOf(date: Date | undefined): number {
  return date === undefined ? 0 : Date.now() - date.getTime();
}
