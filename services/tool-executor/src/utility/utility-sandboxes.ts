import { setTimeout as delay } from 'node:timers/promises';
import type { RunGrant } from '@margay/contracts';
import { isMargayError, UnavailableError } from '@margay/errors';
import { utilitySessionOf, utilityWorkspaceOf, workspaceIdOf, workspaceKeyOf } from '../driver/workspace-key';
import type { LiveSandbox } from '../sandbox/sandbox-claims';
import type { SandboxRegistry, SandboxWish } from '../sandbox/sandbox-registry';

export interface UtilityWorkspace {
  tenantId: string;
  /** Of a session without a project, name the session: nothing of the session itself is touched. */
  workspace: Exclude<RunGrant['workspace'], { kind: 'own' }> | { kind: 'session'; sessionId: string };
}

/** A sandbox in which somebody works who is no session. */
export interface UtilitySandbox {
  /** `u` and the id of the workspace; stands in for the session, e.g. at the head of call ids. */
  sessionId: string;
  client: LiveSandbox['connection']['client'];
  calls: LiveSandbox['connection']['calls'];
  /** Of this life of the sandbox. */
  incarnation: string;
  /** For one request; good for a minute. */
  token: () => Promise<string>;
}

/** The work that people wait for, waits so long for its sandbox. */
const WAIT_MS = 30_000;
const RETRY_AFTER_MS = 5_000;

/**
 * For work without a session, such as worktrees, the diff of a session that sleeps, or archives (cluster §2.3): one sandbox
 * for each workspace, shared by what is wanted of it at the same time, gone a minute after the last of it.
 */
export class UtilitySandboxes {
  constructor(
    private readonly registry: Pick<
      SandboxRegistry,
      'obtain' | 'use' | 'ownerToken' | 'release' | 'forsake' | 'reach' | 'residentOf'
    >,
    private readonly waitMs = WAIT_MS,
  ) {}

  /** @throws UNAVAILABLE `workspace_starting` if there is no sandbox within 30 s; it is on its way, so ask again */
  async use<T>(of: UtilityWorkspace, work: (sandbox: UtilitySandbox) => Promise<T>): Promise<T> {
    const sandbox = await this.obtain(of);
    const end = this.registry.use(sandbox);
    try {
      const { connection, incarnation, ref } = sandbox;
      const { client, calls } = connection;
      const token = () => this.registry.ownerToken(sandbox);
      return await work({ sessionId: ref.sessionId, client, calls, incarnation, token });
    } catch (error) {
      // It is gone: whoever comes next claims again.
      if (isMargayError(error) && error.code === 'UNAVAILABLE') this.registry.forsake(sandbox);
      throw error;
    } finally {
      end();
    }
  }

  /** Ends it now, e.g. because the volume is wanted; the next work starts another one. */
  async end({ tenantId, workspace }: UtilityWorkspace): Promise<void> {
    await this.registry.release(tenantId, wishOf({ tenantId, workspace }).sessionId);
  }

  private async obtain(of: UtilityWorkspace): Promise<LiveSandbox> {
    const wish = wishOf(of);
    const resident = await this.resident(wish);
    if (resident) return resident;
    const claim = this.registry.obtain(wish);
    const timer = new AbortController();
    const late = delay(this.waitMs, undefined, { signal: timer.signal, ref: false });
    late.catch(() => undefined); // stopped below
    try {
      const sandbox = await Promise.race([claim, late]);
      if (sandbox) return sandbox;
    } finally {
      timer.abort();
    }
    claim.catch(() => undefined); // whoever asks next is told
    throw new UnavailableError('workspace_starting', 'The workspace is being opened; ask again in a moment.', {
      retryAfterMs: RETRY_AFTER_MS,
    });
  }

  /** Where one sandbox alone has the files, the work is done in that. */
  private async resident({ tenantId, sessionId }: SandboxWish): Promise<LiveSandbox | undefined> {
    const resident = await this.registry.residentOf(tenantId, utilityWorkspaceOf(sessionId) ?? '');
    if (resident === undefined || resident === sessionId) return undefined;
    return this.registry.reach(tenantId, resident);
  }
}

/** No run owns it, so its epoch never changes. */
function wishOf({ tenantId, workspace }: UtilityWorkspace): SandboxWish {
  const key = workspaceKeyOf({ sessionId: '', workspace });
  return {
    tenantId,
    sessionId: utilitySessionOf(workspaceIdOf(tenantId, key)),
    epoch: 1,
    storeGeneration: 0,
    workspace,
  };
}
