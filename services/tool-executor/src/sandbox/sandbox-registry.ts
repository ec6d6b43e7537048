import { sandboxdPb, type RunGrant } from '@margay/contracts';
import { FailedPreconditionError, isMargayError } from '@margay/errors';
import { CallStream } from '@margay/platform/calls';
import { ATTRIBUTE, grpcClient, withSpan, type GrpcClient, type Logger } from '@margay/platform';
import { SANDBOX_CLASS } from '../metrics';
import {
  isLowerEpoch,
  type ClaimRequest,
  type Epoch,
  type Isolation,
  type ReleaseOptions,
  type SandboxDriver,
  type SandboxRef,
} from './sandbox-driver';
import type { SandboxGrants } from './sandbox-grants';

type SandboxdClient = GrpcClient<typeof sandboxdPb.SandboxdDefinition>;

export interface LiveSandbox {
  ref: SandboxRef;
  client: SandboxdClient;
  /** All calls into it share one stream. */
  calls: CallStream<sandboxdPb.ExecuteRequest, sandboxdPb.ExecuteResponse>;
  incarnation: string;
  /** Equal for equal workspaces. */
  workspaceKey: string;
  activeCalls: number;
  lastUsedAt: number;
}

export interface Fence {
  epoch: number;
  /** Ends what runs at lower epochs. */
  kill: boolean;
  /** With `kill`: also what outlived its calls. */
  background: boolean;
}

/** Told of what happens to sandboxes, for metrics. */
export interface SandboxObserver {
  claimed(seconds: number): void;
  claimFailed(error: unknown): void;
  lost(): void;
}

export interface SandboxRegistryOptions {
  driver: SandboxDriver;
  grants: SandboxGrants;
  idleStopMs: number;
  logger: Logger;
  observer?: SandboxObserver;
  /** Milliseconds of a clock that never jumps. */
  now?: () => number;
}

const SHUTDOWN_GRACE_MS = 1_000;
const HELLO_TIMEOUT_MS = 10_000;
/** Sandboxes tried for one claim. */
const CLAIMS = 3;

/** Which sandbox serves which session: claimed at the first call, ended when idle, claimed again when lost. */
export class SandboxRegistry {
  private readonly live = new Map<string, LiveSandbox>();
  private readonly claiming = new Map<string, Promise<LiveSandbox>>();
  /** Ends under way; a claim for the same session waits for them. */
  private readonly ending = new Map<string, Promise<void>>();
  private readonly now: () => number;

  constructor(private readonly options: SandboxRegistryOptions) {
    this.now = options.now ?? (() => performance.now());
    options.driver.onLost((ref) => {
      options.observer?.lost();
      this.drop(ref.sessionId);
    });
  }

  get counts(): Record<'ready' | 'claiming' | 'ending', number> {
    return { ready: this.live.size, claiming: this.claiming.size, ending: this.ending.size };
  }

  get isolation(): Isolation {
    return this.options.driver.isolation;
  }

  /** The session's sandbox, bound to the grant's epoch. Several callers share one claim. */
  async obtain(grant: RunGrant): Promise<LiveSandbox> {
    const { sessionId } = grant;
    const known = this.live.get(sessionId);
    if (known && known.workspaceKey === keyOf(grant) && known.ref.tenantId === grant.tenantId) {
      if (known.activeCalls > 0 || (await this.options.driver.hasWorkspace(known.ref))) {
        await this.noteEpoch(grant);
        return known;
      }
    }
    const running = this.claiming.get(sessionId);
    if (running) return running;
    const claim = this.observedClaim(grant, known).finally(() => this.claiming.delete(sessionId));
    this.claiming.set(sessionId, claim);
    return claim;
  }

  find(tenantId: string, sessionId: string): LiveSandbox | undefined {
    const known = this.live.get(sessionId);
    return known?.ref.tenantId === tenantId ? known : undefined;
  }

  /** Forgets a sandbox that does not answer; the next call claims again. */
  forsake(sandbox: LiveSandbox): void {
    if (this.live.get(sandbox.ref.sessionId) === sandbox) this.drop(sandbox.ref.sessionId);
  }

  /** A token for one call of a run. */
  tokenFor({ ref }: LiveSandbox, grant: RunGrant): Promise<string> {
    const { tenantId, sessionId, runId, storeGeneration, epoch } = grant;
    return this.options.grants.token({ sandboxId: ref.sandboxId, tenantId, sessionId, runId, storeGeneration, epoch });
  }

  /** A token for what session asks on its own behalf, at the highest epoch known. */
  ownerToken(sandbox: LiveSandbox): Promise<string> {
    const { tenantId, sessionId } = sandbox.ref;
    return this.adminToken(
      sandbox,
      this.options.driver.highestEpoch(tenantId, sessionId) ?? { generation: 0, epoch: 0 },
    );
  }

  /** No call of a lower epoch starts afterwards; also remembered for a sandbox that does not run. */
  async fence(tenantId: string, sessionId: string, fence: Fence): Promise<void> {
    const { driver } = this.options;
    const generation = driver.highestEpoch(tenantId, sessionId)?.generation ?? 0;
    await driver.raiseEpoch(tenantId, sessionId, { generation, epoch: fence.epoch });
    await this.claiming.get(sessionId)?.catch(() => undefined); // a failed claim has nothing to fence
    const sandbox = this.find(tenantId, sessionId);
    if (!sandbox) return;
    const grant = await this.adminToken(sandbox, { generation, epoch: fence.epoch });
    await sandbox.client.fence(fence, { grant });
  }

  /** Ends the session's sandbox and its journal; the workspace stays. */
  async release(tenantId: string, sessionId: string): Promise<void> {
    await this.claiming.get(sessionId)?.catch(() => undefined); // then there is nothing to end
    const sandbox = this.find(tenantId, sessionId);
    const options = { reason: 'released', forget: 'everything' } as const;
    if (sandbox) return this.end(sandbox, options);
    if (this.live.has(sessionId)) return;
    // One that ended before has left its files.
    await this.ending.get(sessionId);
    await this.options.driver.release(this.options.driver.refOf(tenantId, sessionId), options);
  }

  /** Ends a sandbox that does not do what it is asked, without asking; the next call claims again. */
  async replace(sandbox: LiveSandbox, options: ReleaseOptions): Promise<void> {
    const { ref } = sandbox;
    this.options.logger.warn({ sandboxId: ref.sandboxId, sessionId: ref.sessionId, ...options }, 'replacing a sandbox');
    this.forsake(sandbox);
    await this.options.driver.release(ref, options);
  }

  /** Whether no later owner of the run is known, whatever the sandbox says. */
  isCurrent(grant: RunGrant): boolean {
    return this.isHighest(grant.tenantId, grant.sessionId, epochOf(grant));
  }

  /** Sandboxes that survived an earlier life of this process; they are used, or end when idle. */
  async adopt(): Promise<void> {
    for (const ref of this.options.driver.survivors()) {
      try {
        const epoch = this.options.driver.highestEpoch(ref.tenantId, ref.sessionId) ?? { generation: 0, epoch: 0 };
        this.live.set(ref.sessionId, await this.connect(ref, epoch, ''));
      } catch (error) {
        this.options.logger.warn({ sandboxId: ref.sandboxId, err: error }, 'a left sandbox does not answer, ending it');
        await this.options.driver.release(ref, { reason: 'unanswering', forget: 'nothing' });
      }
    }
  }

  /** Ends what nobody has used for the idle time. */
  async sweep(): Promise<void> {
    const due = this.now() - this.options.idleStopMs;
    const idle = [...this.live.values()].filter((sandbox) => sandbox.activeCalls === 0 && sandbox.lastUsedAt <= due);
    await Promise.all(idle.map((sandbox) => this.end(sandbox, { reason: 'idle', forget: 'nothing' })));
  }

  /** Counts a call; call the result when it is over. */
  use(sandbox: LiveSandbox): () => void {
    sandbox.activeCalls += 1;
    return () => {
      sandbox.activeCalls -= 1;
      sandbox.lastUsedAt = this.now();
    };
  }

  async close(): Promise<void> {
    await Promise.allSettled(this.claiming.values());
    await Promise.all(
      [...this.live.values()].map((sandbox) => this.end(sandbox, { reason: 'shutdown', forget: 'nothing' })),
    );
  }

  private async observedClaim(grant: RunGrant, previous: LiveSandbox | undefined): Promise<LiveSandbox> {
    const startedAt = performance.now();
    const attributes = {
      [ATTRIBUTE.conversation]: grant.sessionId,
      [ATTRIBUTE.tenant]: grant.tenantId,
      [ATTRIBUTE.sandboxClass]: SANDBOX_CLASS,
    };
    try {
      const sandbox = await withSpan('sandbox.claim', attributes, () => this.claim(grant, previous));
      this.options.observer?.claimed((performance.now() - startedAt) / 1_000);
      return sandbox;
    } catch (error) {
      this.options.observer?.claimFailed(error);
      throw error;
    }
  }

  private async claim(grant: RunGrant, previous: LiveSandbox | undefined): Promise<LiveSandbox> {
    const { tenantId, sessionId, workspace } = grant;
    if (!this.isCurrent(grant)) throw new FailedPreconditionError('stale_epoch', 'Another process owns the run now.');
    if (previous && previous.workspaceKey !== '')
      await this.end(previous, { reason: 'other workspace', forget: 'nothing' });
    else if (previous) this.drop(sessionId);
    await this.ending.get(sessionId);
    const startedAt = performance.now();
    const request = { tenantId, sessionId, workspace, minimum: epochOf(grant) };
    const sandbox = await this.claimAnswering(request, keyOf(grant));
    const { ref } = sandbox;
    await this.noteEpoch(grant);
    this.live.set(sessionId, sandbox);
    const durationMs = Math.round(performance.now() - startedAt);
    this.options.logger.info({ sandboxId: ref.sandboxId, sessionId, durationMs }, 'sandbox ready');
    return sandbox;
  }

  /** A sandbox may be dying, then damaged, when it is claimed; one that does not answer is ended and replaced. */
  private async claimAnswering(request: ClaimRequest, workspaceKey: string): Promise<LiveSandbox> {
    const { driver, logger } = this.options;
    for (let left = CLAIMS; ; left -= 1) {
      const ref = await driver.claim(request);
      try {
        return await this.connect(ref, request.minimum, workspaceKey);
      } catch (error) {
        // A later owner came meanwhile: it is theirs.
        if (!this.isHighest(ref.tenantId, ref.sessionId, request.minimum)) throw error;
        logger.warn({ sandboxId: ref.sandboxId, err: error }, 'a sandbox does not answer, ending it');
        // What refuses its own session has been tampered with.
        const isDamaged = isMargayError(error) && error.code !== 'UNAVAILABLE' && error.code !== 'DEADLINE_EXCEEDED';
        await driver.release(ref, { reason: 'unanswering', forget: isDamaged ? 'journal' : 'nothing' });
        if (left <= 1 || !isMargayError(error)) throw error;
      }
    }
  }

  private isHighest(tenantId: string, sessionId: string, epoch: Epoch): boolean {
    const known = this.options.driver.highestEpoch(tenantId, sessionId);
    return !known || !isLowerEpoch(epoch, known);
  }

  private async connect(ref: SandboxRef, epoch: Epoch, workspaceKey: string): Promise<LiveSandbox> {
    const { address } = await this.options.driver.endpoint(ref);
    const client = grpcClient(sandboxdPb.SandboxdDefinition, address);
    const calls = new CallStream<sandboxdPb.ExecuteRequest, sandboxdPb.ExecuteResponse>(() => client.calls());
    const sandbox = { ref, client, calls, incarnation: '', workspaceKey, activeCalls: 0, lastUsedAt: this.now() };
    try {
      const grant = await this.adminToken(sandbox, epoch);
      const { incarnation } = await client.hello({ workspaceId: '' }, { grant, timeoutMs: HELLO_TIMEOUT_MS });
      return { ...sandbox, incarnation };
    } catch (error) {
      client.close();
      throw error;
    }
  }

  private end(sandbox: LiveSandbox, options: ReleaseOptions): Promise<void> {
    const { sessionId } = sandbox.ref;
    this.live.delete(sessionId);
    const end = this.shutDown(sandbox, options).finally(() => this.ending.delete(sessionId));
    this.ending.set(sessionId, end);
    return end;
  }

  private async shutDown(sandbox: LiveSandbox, options: ReleaseOptions): Promise<void> {
    const { ref, client } = sandbox;
    const grant = await this.ownerToken(sandbox);
    const asked = client.shutdown({ graceMs: SHUTDOWN_GRACE_MS }, { grant, timeoutMs: SHUTDOWN_GRACE_MS });
    // One that does not answer is ended by the driver all the same.
    await asked.catch((error: unknown) => this.options.logger.debug({ err: error }, 'shutdown was not answered'));
    await this.options.driver.release(ref, options);
    sandbox.calls.close();
    client.close();
  }

  private drop(sessionId: string): void {
    const sandbox = this.live.get(sessionId);
    this.live.delete(sessionId);
    sandbox?.calls.close();
    sandbox?.client.close();
  }

  private adminToken({ ref }: Pick<LiveSandbox, 'ref'>, epoch: Epoch): Promise<string> {
    const { sandboxId, tenantId, sessionId } = ref;
    return this.options.grants.token({
      sandboxId,
      tenantId,
      sessionId,
      storeGeneration: epoch.generation,
      epoch: epoch.epoch,
    });
  }

  /** The record outlives the sandbox, so its next incarnation starts with the highest epoch ever seen. */
  private async noteEpoch(grant: RunGrant): Promise<void> {
    const { driver } = this.options;
    const known = driver.highestEpoch(grant.tenantId, grant.sessionId);
    if (known && !isLowerEpoch(known, epochOf(grant))) return;
    await driver.raiseEpoch(grant.tenantId, grant.sessionId, epochOf(grant));
  }
}

const epochOf = (grant: RunGrant): Epoch => ({ generation: grant.storeGeneration, epoch: grant.epoch });

function keyOf({ workspace }: RunGrant): string {
  return workspace.kind === 'own' ? 'own' : `path ${workspace.path}`;
}
