import { FailedPreconditionError, isMargayError } from '@margay/errors';
import { isLowerEpoch } from '../driver/epoch';
import { utilityWorkspaceOf, workspaceKeyOf } from '../driver/workspace-key';
import {
  classOf,
  SandboxDriver,
  type Claim,
  type ClaimRequest,
  type LostListener,
  type NoticeListener,
  type PoolRequest,
  type PoolState,
  type ReleaseOptions,
  type SandboxEndpoint,
  type SandboxRef,
} from '../driver/sandbox-driver';
import { ColdClaim } from './cold-claim';
import { Endings } from './endings';
import type { Pod } from './kubernetes-api';
import { KubernetesLedger } from './kubernetes-ledger';
import type { EpochRepository } from './epoch.repository';
import { LABEL } from './labels';
import { statusOf, wasOutOfMemory } from './pod-status';
import { podNameOf, Pods } from './pods';
import { QuotaPause } from './quota-pause';
import type { SandboxContext } from './sandbox-context';
import { endpointOf, refOf } from './sandbox-ref';
import { beingTold, bound, changing, claimOf, externalPath, staleEpoch, tenantLimit, unsaved } from './claim-answers';
import { BOUND_STATES, claimKeyOf, isFinal, type SandboxRow } from './sandbox-row';
import type { PodArchives } from './pod-archives';
import { WarmClaim, type WarmOutlook } from './warm-claim';
import type { WorkspaceRow } from './workspace.repository';
import { worktreeWorkspace } from './worktree-workspace';
import { WarmPool, type Probe } from './warm-pool';
import { WorkspacePlaces } from './workspace-places';

/** One claim meets so many changes by others before it gives way. */
const LOOKS = 6;
/** A sandbox bound so recently is being told by whoever bound it. */
const TOLD_MS = 3_000;
/** A sandbox that does not answer for so long is lost; its calls are held meanwhile. */
const SILENT_MS = 30_000;
const SILENT_AGAIN_MS = 1_000;
const IDLE_FOR_OTHERS_MS = 60_000;
/** Why a sandbox drains that its pod takes along. */
const POD_LEAVING = 'pod_leaving';

/** Answers that are on their way. */
interface Outlook {
  /** How many sandboxes the tenant has. */
  bound: Promise<number>;
  /** How many of its other sessions wait for one. */
  waiting: Promise<number>;
  workspace: Promise<WorkspaceRow>;
  warm: Promise<WarmOutlook>;
}

/** Sandboxes as pods of a cluster (cluster §1). Everything it knows lies in the store; every replica may go on anywhere. */
export class KubernetesDriver extends SandboxDriver {
  readonly isolation = 'pod';
  readonly ledger: KubernetesLedger;
  readonly endings: Endings;
  readonly pods: Pods;
  /** What keeps files that end with their pods; set before the first claim. */
  keeping?: { archives: PodArchives; places: WorkspacePlaces; expectNothing: (sandboxId: string) => void };
  private readonly warm: WarmClaim;
  private readonly cold: ColdClaim;
  private readonly pool: WarmPool;
  private readonly listeners = new Set<LostListener>();
  /** Since when sandboxes do not answer. */
  private readonly silent = new Map<string, number>();

  constructor(
    private readonly context: SandboxContext,
    epochs: EpochRepository,
    probe: Probe,
  ) {
    super();
    this.ledger = new KubernetesLedger(context, epochs);
    this.pods = new Pods(context);
    this.endings = new Endings(context, this.pods);
    this.warm = new WarmClaim(context, this.endings);
    this.cold = new ColdClaim(context, { pods: this.pods, endings: this.endings, quota: new QuotaPause() });
    this.pool = new WarmPool(context, { pods: this.pods, endings: this.endings, probe });
    context.pods.onChange((pod, isDeleted) => {
      this.noticed(pod, isDeleted).catch((error: unknown) =>
        context.logger.warn({ err: error }, 'the end of a pod could not be recorded; the collection will'),
      );
    });
  }

  get classes(): readonly string[] {
    return this.context.settings.classNames;
  }

  ensurePool(request: PoolRequest): Promise<PoolState> {
    return this.pool.ensure(request);
  }

  async claim(request: ClaimRequest): Promise<Claim> {
    const { tenantId, sessionId, minimum, workspace } = request;
    if (workspace.kind === 'path') throw externalPath();
    await this.context.gate?.admit(tenantId, this.context.settings.namespaceOf(tenantId));
    const ids = WorkspacePlaces.idsOf(request);
    const find = () => this.context.sandboxes.findByClaimKey(claimKeyOf(sessionId, classOf(request)));
    const ahead = this.lookAhead(request);
    const [highest, first] = await Promise.all([this.ledger.raise(tenantId, sessionId, minimum), find()]);
    if (isLowerEpoch(minimum, highest)) throw staleEpoch();
    for (let left = LOOKS, row = first; left > 0; left -= 1, row = await find()) {
      const isFirst = left === LOOKS;
      if (row && row.tenantId !== tenantId) throw bound();
      if (row && !ids.includes(row.workspaceId ?? '')) {
        if ((await this.keeping?.archives.save(row)) === 'failed') return unsaved();
        await this.endings.end(row, 'released', 'other workspace');
        continue;
      }
      const claim = row
        ? await this.goOn(row, request)
        : await this.begin(request, isFirst ? ahead : this.lookAhead(request));
      if (claim) return claim;
    }
    return changing();
  }

  /** Its files are on its volume, or gone with the pod; either way a claim finds what there is. */
  resume(request: ClaimRequest): Promise<Claim> {
    return this.claim(request);
  }

  async endpoint({ sandboxId }: SandboxRef): Promise<SandboxEndpoint> {
    const row = await this.context.sandboxes.find(sandboxId);
    if (!row || isFinal(row)) throw new FailedPreconditionError('sandbox_ended', `Sandbox ${sandboxId} has ended.`);
    return endpointOf(row);
  }

  /** Where its files end with its pod, they are archived; a failure is told by a note and tried again. */
  override async save({ sandboxId, tenantId }: SandboxRef): Promise<void> {
    const row = await this.context.sandboxes.find(sandboxId);
    if (row && row.tenantId === tenantId && !isFinal(row)) await this.keeping?.archives.save(row);
  }

  async suspend(ref: SandboxRef, reason: string): Promise<{ snapshotId?: string }> {
    await this.release(ref, { reason, forget: 'nothing' });
    return {};
  }

  /** A pod is never used again, so there is nothing to choose to forget. */
  async release({ sandboxId, tenantId }: SandboxRef, { reason }: ReleaseOptions): Promise<void> {
    const row = await this.context.sandboxes.find(sandboxId);
    if (!row || row.tenantId !== tenantId || isFinal(row)) return;
    if (await this.endings.end(row, 'released', reason)) return;
    const now = await this.context.sandboxes.find(sandboxId);
    if (now && !isFinal(now)) await this.endings.end(now, 'released', reason);
  }

  override onNotice(listener: NoticeListener): void {
    if (this.keeping) this.keeping.archives.onNotice = listener;
  }

  override whyRestarted({ sandboxId }: SandboxRef): 'memory' | undefined {
    return wasOutOfMemory(this.context.pods.named(podNameOf(sandboxId))) ? 'memory' : undefined;
  }

  onLost(listener: LostListener): void {
    this.listeners.add(listener);
  }

  /** What a new sandbox needs to know, asked for all at once and before it is known to be needed. */
  private lookAhead(request: ClaimRequest): Outlook {
    const { sandboxes, settings } = this.context;
    const ahead = {
      bound: sandboxes.countBound(request.tenantId, settings.tenantMax),
      waiting: this.context.waiting.count(request.tenantId, request.sessionId),
      workspace: this.obtainWorkspace(request),
      warm: this.warm.lookAhead(request),
    };
    // Whoever needs them is told.
    for (const answer of Object.values(ahead)) answer.catch(() => undefined);
    return ahead;
  }

  private async begin(request: ClaimRequest, ahead: Outlook): Promise<Claim | undefined> {
    const { bound, waiting } = ahead;
    const [obtained, outlook, place] = await Promise.all([
      ahead.workspace,
      ahead.warm,
      this.queueFor(request, { bound, waiting }),
    ]);
    const left = await this.leaveOther(request, outlook.latest);
    if (left !== 'nothing') return left === 'ended' ? undefined : unsaved();
    if (place !== undefined) return tenantLimit(this.context.settings.tenantMax, place);
    const workspace = await this.placeOf(request, obtained);
    // A volume may lie elsewhere than the tenant's new ones do, and takes its pods there.
    if (workspace.volume) await this.context.gate?.admit(request.tenantId, workspace.volume.namespace);
    if (workspace.volume && (await this.isBeingLabelled(workspace))) return beingTold();
    const warm = this.canBeWarm(request, workspace) ? await this.warm.bind(request, workspace, outlook) : undefined;
    if (warm === 'taken') return undefined;
    // Its files are here, or there are none yet.
    const isPlain = warm?.volume && (workspace.state === 'new' || workspace.state === 'live');
    if (warm && isPlain) this.keeping?.expectNothing(warm._id);
    if (warm) {
      this.leaveQueue(request);
      return claimOf(await this.warm.finish(warm, request), 'warm');
    }
    const cold = await this.cold.begin(request, workspace);
    if (!cold) return undefined;
    this.leaveQueue(request);
    return '_id' in cold ? this.cold.goOn(cold, request, workspace) : { refusal: cold };
  }

  /** A session has one sandbox: that of the class which it had before ends, but never with files that are nowhere else. */
  private async leaveOther(
    request: ClaimRequest,
    latest: SandboxRow | undefined,
  ): Promise<'nothing' | 'ended' | 'unsaved'> {
    const isItsOwn = latest?.claimKey.startsWith('s/') && latest.tenantId === request.tenantId;
    if (!latest || !isItsOwn || latest.class === classOf(request)) return 'nothing';
    if ((await this.keeping?.archives.save(latest)) === 'failed') return 'unsaved';
    await this.endings.end(latest, 'released', 'other class');
    return 'ended';
  }

  /** A waiting one brings what its class stores files on; those of the workspace lie where they were begun. */
  private canBeWarm(request: ClaimRequest, { volume, storage }: WorkspaceRow): boolean {
    return volume === undefined && storage === this.context.settings.class(classOf(request)).storage;
  }

  private async goOn(row: SandboxRow, request: ClaimRequest): Promise<Claim | undefined> {
    switch (row.state) {
      case 'ready':
        return this.reuse(row, request);
      case 'claimed': {
        const { _id: sandboxId, state, claimedAt } = row;
        const isBeingTold = Date.now() - (claimedAt?.getTime() ?? 0) < TOLD_MS;
        if (!isBeingTold) return claimOf(await this.warm.finish(row, request), 'warm');
        return beingTold({ sandboxId, state });
      }
      case 'starting':
        return this.cold.goOn(row, request, await this.workspaceOf(request));
      default:
        // Its claim key is free at the next look.
        return undefined;
    }
  }

  private async reuse(row: SandboxRow, request: ClaimRequest): Promise<Claim | undefined> {
    const { _id: sandboxId } = row;
    const seen = this.context.pods.get(row) ?? (await this.pods.find(row));
    if (!seen || seen.metadata?.uid !== row.podUid) return this.lose(row, 'pod_gone');
    if (statusOf(seen).kind === 'leaving') return void (await this.drain(row));
    try {
      await request.greet(refOf(row), endpointOf(row));
      this.silent.delete(sandboxId);
      return { ref: refOf(row), path: 'known' };
    } catch (error) {
      if (!isMargayError(error) || (error.code !== 'UNAVAILABLE' && error.code !== 'DEADLINE_EXCEEDED')) throw error;
      const since = this.silent.get(sandboxId) ?? performance.now();
      this.silent.set(sandboxId, since);
      if (performance.now() - since > SILENT_MS) return this.lose(row, 'unreachable');
      const { state } = row;
      return {
        refusal: { sandboxId, state, reason: 'node_lost', message: error.message, retryAfterMs: SILENT_AGAIN_MS },
      };
    }
  }

  private async lose(row: SandboxRow, reason: string): Promise<undefined> {
    this.silent.delete(row._id);
    if (await this.endings.end(row, 'lost', reason)) this.tellLost(row, reason);
  }

  /** First come, first served. @returns its place in the queue; undefined: it is its turn */
  private async queueFor(
    { tenantId, sessionId }: ClaimRequest,
    ahead: Pick<Outlook, 'bound' | 'waiting'>,
  ): Promise<number | undefined> {
    const { waiting, settings } = this.context;
    const bound = await ahead.bound;
    if (bound + (await ahead.waiting) < settings.tenantMax) return undefined;
    const place = await waiting.join(tenantId, sessionId);
    if (bound + place <= settings.tenantMax) return undefined;
    return place === 1 && (await this.makeRoom(tenantId)) ? undefined : place;
  }

  private leaveQueue({ tenantId, sessionId }: ClaimRequest): void {
    const { waiting, logger } = this.context;
    waiting
      .leave(tenantId, sessionId)
      .catch((error: unknown) => logger.warn({ err: error, sessionId }, 'a place in the queue was kept for nobody'));
  }

  /** A tenant's idle sandboxes make room for one that is needed. */
  private async makeRoom(tenantId: string): Promise<boolean> {
    const { sandboxes } = this.context;
    const idle = await sandboxes.findIdle(tenantId, new Date(Date.now() - IDLE_FOR_OTHERS_MS));
    if (!idle) return false;
    return this.keeping ? this.keeping.archives.suspend(idle, 'idle') : this.endings.end(idle, 'released', 'idle');
  }

  private obtainWorkspace(request: ClaimRequest): Promise<WorkspaceRow> {
    const { tenantId, sessionId, workspace } = request;
    const { settings, workspaces } = this.context;
    const { storage } = settings.class(classOf(request));
    if (workspace.kind === 'worktree') return worktreeWorkspace(workspaces, { tenantId, sessionId }, workspace);
    const key = workspaceKeyOf({ sessionId, workspace });
    const made = { class: classOf(request), storage };
    const isUtility = utilityWorkspaceOf(sessionId) !== undefined;
    return isUtility ? workspaces.peek(tenantId, key, made) : workspaces.obtain(tenantId, key, made);
  }

  private async placeOf(request: ClaimRequest, row: WorkspaceRow): Promise<WorkspaceRow> {
    return this.keeping ? this.keeping.places.placeFor(request, row) : row;
  }

  private async workspaceOf(request: ClaimRequest): Promise<WorkspaceRow> {
    return this.placeOf(request, await this.obtainWorkspace(request));
  }

  /** A pod that is to share a volume goes where the first one is, which the scheduler sees by its label. */
  private async isBeingLabelled({ _id, parentId = _id }: WorkspaceRow): Promise<boolean> {
    const since = new Date(Date.now() - TOLD_MS);
    return (await this.context.sandboxes.findClaimed(parentId, since)) !== undefined;
  }

  /** What the cluster did to a pod by itself, or somebody in it. */
  private async noticed(pod: Pod, isDeleted: boolean): Promise<void> {
    const id = pod.metadata?.labels?.[LABEL.sandbox];
    const status = statusOf(pod);
    if (id === undefined || (!isDeleted && status.kind !== 'leaving')) return;
    const row = await this.context.sandboxes.find(id);
    if (!row || isFinal(row) || row.podUid !== pod.metadata?.uid) return;
    const isBound = (BOUND_STATES as readonly string[]).includes(row.state);
    const isOver = isDeleted || pod.metadata?.deletionTimestamp === undefined;
    if (isOver && isBound) return void (await this.lose(row, isDeleted ? 'pod_gone' : 'pod_ended'));
    if (isBound) return this.drain(row);
    const isWaiting = row.state === 'warm' || row.state === 'warming';
    if (isOver && isWaiting) return void (await this.endings.end(row, 'failed', 'pod_gone'));
    // Any other end is seen through by whoever began it, who knows whether it is a loss.
    if (isOver && row.reason === POD_LEAVING) await this.context.sandboxes.finish(row, 'released', POD_LEAVING);
  }

  /** Its files are saved while its calls end; whoever claims next waits for that. */
  private async drain(row: SandboxRow): Promise<void> {
    const draining = await this.endings.drain(row, POD_LEAVING);
    if (draining) void this.keeping?.archives.save(draining, { last: true });
  }

  private tellLost(row: SandboxRow, reason: string): void {
    const { _id: sandboxId, sessionId } = row;
    this.context.logger.warn({ sandboxId, sessionId, reason }, 'sandbox lost');
    for (const listener of this.listeners) listener(refOf(row), reason);
  }
}
