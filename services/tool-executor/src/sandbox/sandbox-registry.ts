import type { RunGrant } from '@margay/contracts';
import { ATTRIBUTE, withSpan, type Logger } from '@margay/platform';
import {
  classOf,
  type Isolation,
  type Refusal,
  type ReleaseOptions,
  type SandboxDriver,
} from '../driver/sandbox-driver';
import type { SandboxLedger } from '../driver/sandbox-ledger';
import { UTILITY_IDLE_MS, utilityWorkspaceOf } from '../driver/workspace-key';
import { SandboxClaims, staleEpoch, type ClaimedSandbox, type LiveSandbox } from './sandbox-claims';
import type { SandboxConnections } from './sandbox-connections';
import type { SandboxGrants } from './sandbox-grants';
import type { SandboxPreparation } from './sandbox-preparation';
import { Preparations } from './preparations';
import { epochOf, keyOf, requireClass, type Fence, type SandboxObserver, type SandboxWish } from './sandbox-wish';

export type { Fence, SandboxObserver, SandboxWish } from './sandbox-wish';

export interface SandboxRegistryOptions {
  driver: SandboxDriver;
  ledger: SandboxLedger;
  grants: SandboxGrants;
  idleStopMs: number;
  logger: Logger;
  observer?: SandboxObserver;
  preparation?: SandboxPreparation | undefined;
  connections?: SandboxConnections | undefined;
  /** Told of each sandbox that comes into use here. */
  onClaimed?: (sandbox: LiveSandbox) => void;
  /** Milliseconds of a clock that never jumps. */
  now?: () => number;
}

interface UnderWay<T> {
  end: Promise<T>;
  className: string;
}

const SHUTDOWN_GRACE_MS = 1_000;

/** Which sandbox serves which session: claimed at the first call, ended when idle, claimed again when lost. */
export class SandboxRegistry {
  private readonly live = new Map<string, LiveSandbox>();
  private readonly claiming = new Map<string, UnderWay<LiveSandbox>>();
  /** Ends under way; a claim for the same session waits for them. */
  private readonly ending = new Map<string, UnderWay<void>>();
  private readonly now: () => number;
  private readonly claims: SandboxClaims;
  private readonly preparations: Preparations;

  constructor(private readonly options: SandboxRegistryOptions) {
    this.now = options.now ?? (() => performance.now());
    this.claims = new SandboxClaims({ ...options, now: this.now });
    this.preparations = new Preparations(options.preparation, (sandbox) => this.ownerToken(sandbox));
    options.driver.onNotice(({ sessionId }, event) => void this.live.get(sessionId)?.notices.push(event));
    options.driver.onLost((ref, reason) => {
      options.observer?.lost(reason);
      if (this.live.get(ref.sessionId)?.ref.sandboxId === ref.sandboxId) this.drop(ref.sessionId);
    });
  }

  /** The class of each sandbox, by what is done with it; that of one which only others have claimed is not known. */
  get inUse(): Record<'ready' | 'claiming' | 'ending', string[]> {
    const classesOf = (all: Map<string, { className: string }>) => [...all.values()].map(({ className }) => className);
    return { ready: classesOf(this.live), claiming: classesOf(this.claiming), ending: classesOf(this.ending) };
  }

  get classes(): readonly string[] {
    return this.options.driver.classes;
  }

  get isolation(): Isolation {
    return this.options.driver.isolation;
  }

  /** The session's sandbox, ready for calls and bound to the grant's epoch. Several callers share one claim. */
  obtain(grant: SandboxWish): Promise<LiveSandbox> {
    const ports = { claim: () => this.claimed(grant), forsake: (sandbox: LiveSandbox) => this.forsake(sandbox) };
    return this.preparations.obtain(grant, ports);
  }

  private async claimed(grant: SandboxWish): Promise<LiveSandbox> {
    const { sessionId } = grant;
    const known = this.live.get(sessionId);
    const isSame = known?.workspaceKey === keyOf(grant) && known.className === classOf(grant);
    if (known && isSame && known.ref.tenantId === grant.tenantId) {
      const { ledger } = this.options;
      if ((known.activeCalls > 0 && !ledger.isShared) || (await ledger.isUsable(known.ref))) {
        await this.noteEpoch(grant);
        return known;
      }
    }
    const running = this.claiming.get(sessionId);
    if (running) return running.end;
    requireClass(this.classes, grant);
    const claim = this.observedClaim(grant, known).finally(() => this.claiming.delete(sessionId));
    this.claiming.set(sessionId, { end: claim, className: classOf(grant) });
    return claim;
  }

  /** Whether the session ever had a sandbox. */
  async hadSandbox(tenantId: string, sessionId: string): Promise<boolean> {
    return (await this.options.ledger.highestEpoch(tenantId, sessionId)) !== undefined;
  }

  /** A sandbox that serves this workspace, whosever it is. */
  findIn(tenantId: string, workspaceKey: string): LiveSandbox | undefined {
    return [...this.live.values()].find(
      (sandbox) => sandbox.workspaceKey === workspaceKey && sandbox.ref.tenantId === tenantId,
    );
  }

  find(tenantId: string, sessionId: string): LiveSandbox | undefined {
    const known = this.live.get(sessionId);
    return known?.ref.tenantId === tenantId ? known : undefined;
  }

  /** Whether calls can go to the session's sandbox at once. */
  isReady(tenantId: string, sessionId: string): boolean {
    return this.preparations.isPrepared(this.find(tenantId, sessionId));
  }

  /** What the claim for a session waits for; undefined while it goes ahead. */
  refusalOf(sessionId: string): Refusal | undefined {
    if (this.claiming.has(sessionId)) return this.claims.refusalOf(sessionId);
    return this.preparations.refusalOf(sessionId);
  }

  /** The session's sandbox, also one that so far only other replicas have used. */
  async reach(tenantId: string, sessionId: string): Promise<LiveSandbox | undefined> {
    const known = this.find(tenantId, sessionId);
    if (known || !this.options.ledger.isShared) return known;
    const ref = await this.options.ledger.find(tenantId, sessionId);
    if (!ref || !(await this.options.ledger.isUsable(ref))) return undefined;
    const highest = await this.claims.highestEpoch(tenantId, sessionId);
    const sandbox = await this.claims.connect(ref, await this.options.driver.endpoint(ref), highest);
    this.live.set(sessionId, sandbox);
    return sandbox;
  }

  /** Forgets a sandbox that does not answer; the next call claims again. */
  forsake(sandbox: LiveSandbox): void {
    if (this.live.get(sandbox.ref.sessionId) === sandbox) this.drop(sandbox.ref.sessionId);
  }

  /** A token for one call of a run. */
  tokenFor({ connection: { audience } }: LiveSandbox, grant: RunGrant): Promise<string> {
    const { tenantId, sessionId, runId, storeGeneration, epoch } = grant;
    return this.options.grants.token({ sandboxId: audience, tenantId, sessionId, runId, storeGeneration, epoch });
  }

  /** A token for what session asks on its own behalf, at the highest epoch known. */
  async ownerToken({ ref, connection }: LiveSandbox): Promise<string> {
    const { tenantId, sessionId } = ref;
    return this.claims.adminToken(ref, connection.audience, await this.claims.highestEpoch(tenantId, sessionId));
  }

  /** No call of a lower epoch starts afterwards; also remembered for a sandbox that does not run. */
  async fence(tenantId: string, sessionId: string, fence: Fence): Promise<void> {
    const { generation } = await this.claims.highestEpoch(tenantId, sessionId);
    const epoch = { generation, epoch: fence.epoch };
    await this.options.ledger.raiseEpoch(tenantId, sessionId, epoch);
    await this.claiming.get(sessionId)?.end.catch(() => undefined); // a failed claim has nothing to fence
    const sandbox = await this.reach(tenantId, sessionId);
    if (!sandbox) return;
    const grant = await this.claims.adminToken(sandbox.ref, sandbox.connection.audience, epoch);
    await sandbox.connection.client.fence(fence, { grant });
  }

  /**
   * Ends the session's sandbox and its journal; the workspace stays.
   * @param upToEpoch not if a later owner is known: it has claimed another one since, or will end what is out of place
   */
  async release(tenantId: string, sessionId: string, upToEpoch?: number): Promise<void> {
    await this.claiming.get(sessionId)?.end.catch(() => undefined); // then there is nothing to end
    if (upToEpoch !== undefined) {
      const { epoch } = await this.claims.highestEpoch(tenantId, sessionId);
      if (epoch > upToEpoch || this.claiming.has(sessionId)) return;
    }
    this.preparations.cancel(sessionId);
    const sandbox = this.find(tenantId, sessionId);
    const options = { reason: 'released', forget: 'everything' } as const;
    if (sandbox) return this.end(sandbox, options);
    if (this.live.has(sessionId)) return;
    // One that ended before has left its files.
    await this.ending.get(sessionId)?.end;
    const ref = await this.options.ledger.find(tenantId, sessionId);
    if (!ref) return;
    await this.options.driver.save(ref);
    await this.options.driver.release(ref, options);
  }

  /** Archives the files of the session's sandbox where they would end with it, at its run's end. */
  async save(tenantId: string, sessionId: string): Promise<void> {
    const ref = this.find(tenantId, sessionId)?.ref ?? (await this.options.ledger.find(tenantId, sessionId));
    if (ref) await this.options.driver.save(ref);
  }

  /** The session whose sandbox alone has the files of a workspace. */
  residentOf(tenantId: string, workspaceId: string): Promise<string | undefined> {
    return this.options.ledger.residentOf(tenantId, workspaceId);
  }

  /** Ends a sandbox that does not do what it is asked, without asking; the next call claims again. */
  async replace(sandbox: LiveSandbox, options: ReleaseOptions): Promise<void> {
    const { ref } = sandbox;
    this.options.logger.warn({ sandboxId: ref.sandboxId, sessionId: ref.sessionId, ...options }, 'replacing a sandbox');
    this.forsake(sandbox);
    await this.options.driver.release(ref, options);
  }

  /** What ended its calls when its container started again. */
  whyRestarted({ ref }: LiveSandbox): 'memory' | undefined {
    return this.options.driver.whyRestarted(ref);
  }

  /** Whether no later owner of the run is known, whatever the sandbox says. */
  isCurrent(grant: SandboxWish): Promise<boolean> {
    return this.claims.isHighest(grant.tenantId, grant.sessionId, epochOf(grant));
  }

  /** Sandboxes that survived an earlier life of this process; they are used, or end when idle. */
  async adopt(): Promise<void> {
    const { driver, ledger, logger } = this.options;
    for (const ref of ledger.survivors()) {
      try {
        const highest = await this.claims.highestEpoch(ref.tenantId, ref.sessionId);
        this.live.set(ref.sessionId, await this.claims.connect(ref, await driver.endpoint(ref), highest));
      } catch (error) {
        logger.warn({ sandboxId: ref.sandboxId, err: error }, 'a left sandbox does not answer, ending it');
        await driver.release(ref, { reason: 'unanswering', forget: 'nothing' });
      }
    }
  }

  /** Ends what nobody has used for the idle time; of what others may use only the connection ends. */
  async sweep(): Promise<void> {
    const all = [...this.live.values()];
    const idle = all.filter((sandbox) => sandbox.activeCalls === 0 && this.isIdle(sandbox));
    if (!this.options.ledger.isShared) {
      await Promise.all(idle.map((sandbox) => this.end(sandbox, { reason: 'idle', forget: 'nothing' })));
      return;
    }
    for (const { ref } of idle) this.drop(ref.sessionId);
    const used = all.filter(({ activeCalls }) => activeCalls > 0);
    await Promise.all(used.map(({ ref }) => this.options.ledger.touch(ref)));
  }

  private isIdle({ ref, lastUsedAt }: LiveSandbox): boolean {
    const { idleStopMs } = this.options;
    const isUtility = utilityWorkspaceOf(ref.sessionId) !== undefined;
    return lastUsedAt <= this.now() - (isUtility ? Math.min(UTILITY_IDLE_MS, idleStopMs) : idleStopMs);
  }

  /** Counts a call; call the result when it is over. */
  use(sandbox: LiveSandbox): () => void {
    sandbox.activeCalls += 1;
    this.touch(sandbox);
    return () => {
      sandbox.activeCalls -= 1;
      this.touch(sandbox);
      if (sandbox.isRetired && sandbox.activeCalls === 0) sandbox.connection.close();
    };
  }

  async close(): Promise<void> {
    this.claims.close();
    await this.preparations.close();
    await Promise.allSettled([...this.claiming.values()].map(({ end }) => end));
    if (this.options.ledger.isShared) return [...this.live.keys()].forEach((sessionId) => this.drop(sessionId));
    await Promise.all(
      [...this.live.values()].map((sandbox) => this.end(sandbox, { reason: 'shutdown', forget: 'nothing' })),
    );
  }

  private async observedClaim(grant: SandboxWish, previous: LiveSandbox | undefined): Promise<LiveSandbox> {
    const startedAt = performance.now();
    const attributes = {
      [ATTRIBUTE.conversation]: grant.sessionId,
      [ATTRIBUTE.tenant]: grant.tenantId,
      [ATTRIBUTE.sandboxClass]: classOf(grant),
    };
    try {
      const { sandbox, path } = await withSpan('sandbox.claim', attributes, () => this.claim(grant, previous));
      this.options.observer?.claimed((performance.now() - startedAt) / 1_000, path, classOf(grant));
      return sandbox;
    } catch (error) {
      this.options.observer?.claimFailed(error);
      throw error;
    }
  }

  private async claim(grant: SandboxWish, previous: LiveSandbox | undefined): Promise<ClaimedSandbox> {
    const { tenantId, sessionId, workspace, sandboxClass } = grant;
    const { ledger, preparation } = this.options;
    // What replicas share is asked by the claim itself.
    const [isOurs] = await Promise.all([ledger.isShared || this.isCurrent(grant), preparation?.admit(grant)]);
    if (!isOurs) throw staleEpoch();
    // What others use, too, the driver ends when its files are safe.
    if (previous && !ledger.isShared && this.isOutOfPlace(previous, grant))
      await this.end(previous, { reason: 'other workspace', forget: 'nothing' });
    else if (previous) this.retire(previous);
    await this.ending.get(sessionId)?.end;
    const startedAt = performance.now();
    const claimed = await this.claims.open({ tenantId, sessionId, workspace, sandboxClass, minimum: epochOf(grant) });
    const { ref } = claimed.sandbox;
    claimed.sandbox.workspaceKey = keyOf(grant);
    claimed.sandbox.className = classOf(grant);
    await this.noteEpoch(grant);
    this.live.set(sessionId, claimed.sandbox);
    this.options.onClaimed?.(claimed.sandbox);
    const durationMs = Math.round(performance.now() - startedAt);
    this.options.logger.info({ sandboxId: ref.sandboxId, sessionId, durationMs }, 'sandbox ready');
    return claimed;
  }

  /** Whether it is of another workspace or class, or on a folder that has gone. One that others use may just have been lost. */
  private isOutOfPlace({ workspaceKey, className }: LiveSandbox, grant: SandboxWish): boolean {
    if (workspaceKey === '') return false;
    return !this.options.ledger.isShared || workspaceKey !== keyOf(grant) || className !== classOf(grant);
  }

  private end(sandbox: LiveSandbox, options: ReleaseOptions): Promise<void> {
    const { sessionId } = sandbox.ref;
    this.live.delete(sessionId);
    const end = this.shutDown(sandbox, options).finally(() => this.ending.delete(sessionId));
    this.ending.set(sessionId, { end, className: sandbox.className });
    return end;
  }

  private async shutDown(sandbox: LiveSandbox, options: ReleaseOptions): Promise<void> {
    const { ref, connection } = sandbox;
    await this.options.driver.save(ref);
    const grant = await this.ownerToken(sandbox);
    const asked = connection.client.shutdown({ graceMs: SHUTDOWN_GRACE_MS }, { grant, timeoutMs: SHUTDOWN_GRACE_MS });
    // One that does not answer is ended by the driver all the same.
    await asked.catch((error: unknown) => this.options.logger.debug({ err: error }, 'shutdown was not answered'));
    if (options.reason === 'idle') await this.options.driver.suspend(ref, options.reason);
    else await this.options.driver.release(ref, options);
    connection.close();
  }

  private drop(sessionId: string): void {
    const sandbox = this.live.get(sessionId);
    this.live.delete(sessionId);
    sandbox?.connection.close();
  }

  /** Its calls go on to their end, which a sandbox that is leaving gives them time for. */
  private retire(sandbox: LiveSandbox): void {
    this.live.delete(sandbox.ref.sessionId);
    sandbox.isRetired = true;
    if (sandbox.activeCalls === 0) sandbox.connection.close();
  }

  private touch(sandbox: LiveSandbox): void {
    sandbox.lastUsedAt = this.now();
    const { ref } = sandbox;
    this.options.ledger
      .touch(ref)
      .catch((error: unknown) =>
        this.options.logger.warn({ sandboxId: ref.sandboxId, err: error }, 'use not recorded'),
      );
  }

  /** The record outlives the sandbox, so its next incarnation starts with the highest epoch ever seen. */
  private noteEpoch(grant: SandboxWish): Promise<void> {
    return this.options.ledger.raiseEpoch(grant.tenantId, grant.sessionId, epochOf(grant));
  }
}
