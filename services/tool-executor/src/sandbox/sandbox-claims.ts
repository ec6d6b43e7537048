import { setTimeout as delay } from 'node:timers/promises';
import type { EventInput } from '@margay/contracts';
import { FailedPreconditionError, isMargayError, UnavailableError } from '@margay/errors';
import type { Logger } from '@margay/platform';
import { FIRST_EPOCH, isLowerEpoch, type Epoch } from '../driver/epoch';
import type {
  Claim,
  ClaimPath,
  ClaimRequest,
  Refusal,
  SandboxDriver,
  SandboxEndpoint,
  SandboxRef,
} from '../driver/sandbox-driver';
import type { SandboxLedger } from '../driver/sandbox-ledger';
import { SandboxConnection } from './sandbox-connection';
import type { SandboxConnections } from './sandbox-connections';
import type { SandboxGrants } from './sandbox-grants';

export interface LiveSandbox {
  ref: SandboxRef;
  connection: SandboxConnection;
  incarnation: string;
  /** Equal for equal workspaces. */
  workspaceKey: string;
  /** Empty, as that of its workspace, while nobody has claimed it here. */
  className: string;
  activeCalls: number;
  lastUsedAt: number;
  /** What its run has yet to be told of its workspace. */
  notices: EventInput[];
  /** Another one has taken its place; it ends with its last call. */
  isRetired: boolean;
}

export interface ClaimedSandbox {
  sandbox: LiveSandbox;
  path: ClaimPath;
}

export interface SandboxClaimsOptions {
  driver: SandboxDriver;
  ledger: SandboxLedger;
  grants: SandboxGrants;
  logger: Logger;
  /** Where some are opened beforehand. */
  connections?: SandboxConnections | undefined;
  /** Milliseconds of a clock that never jumps. */
  now: () => number;
}

/** A sandbox that does not come for so long is given up. */
const CLAIM_MS = 600_000;
/** Sandboxes tried for one claim. */
const CLAIMS = 3;

/** Sees a claim through until a sandbox answers. */
export class SandboxClaims {
  /** Why a claim under way has not come to its end. */
  private readonly refusals = new Map<string, Refusal>();
  private readonly closing = new AbortController();

  constructor(private readonly options: SandboxClaimsOptions) {}

  /** What the claim for a session waits for. */
  refusalOf(sessionId: string): Refusal | undefined {
    return this.refusals.get(sessionId);
  }

  /** Claims that wait fail. */
  close(): void {
    this.closing.abort();
  }

  /** A sandbox may be dying, then damaged, when it is claimed; one that does not answer is ended and replaced. */
  async open(request: Omit<ClaimRequest, 'greet'>): Promise<ClaimedSandbox> {
    const { driver, logger } = this.options;
    for (let left = CLAIMS; ; left -= 1) {
      let greeted: LiveSandbox | undefined;
      const greet: ClaimRequest['greet'] = async (to, endpoint) => {
        greeted?.connection.close();
        greeted = await this.connect(to, endpoint, request.minimum);
        return greeted.connection;
      };
      const { ref, path } = await this.untilClaimed({ ...request, greet })
        .finally(() => this.refusals.delete(request.sessionId))
        .catch((error: unknown) => {
          greeted?.connection.close();
          throw error;
        });
      try {
        const known = greeted?.ref.sandboxId === ref.sandboxId ? greeted : undefined;
        return { sandbox: known ?? (await this.connect(ref, await driver.endpoint(ref), request.minimum)), path };
      } catch (error) {
        // A later owner came meanwhile: it is theirs.
        if (!(await this.isHighest(ref.tenantId, ref.sessionId, request.minimum))) throw error;
        logger.warn({ sandboxId: ref.sandboxId, err: error }, 'a sandbox does not answer, ending it');
        // What refuses its own session has been tampered with.
        const isDamaged = isMargayError(error) && error.code !== 'UNAVAILABLE' && error.code !== 'DEADLINE_EXCEEDED';
        await driver.release(ref, { reason: 'unanswering', forget: isDamaged ? 'journal' : 'nothing' });
        if (left <= 1 || !isMargayError(error)) throw error;
      }
    }
  }

  /** Asks again while it is refused for the moment, for ten minutes at most. */
  private async untilClaimed(request: ClaimRequest): Promise<Extract<Claim, { ref: SandboxRef }>> {
    const since = this.options.now();
    for (;;) {
      const claim = await this.options.driver.claim(request);
      if ('ref' in claim) return claim;
      const { refusal } = claim;
      if (!(await this.isHighest(request.tenantId, request.sessionId, request.minimum))) throw staleEpoch();
      this.refusals.set(request.sessionId, refusal);
      if (refusal.retryAfterMs === undefined || this.options.now() - since > CLAIM_MS) throw unavailable(refusal);
      const { signal } = this.closing;
      await delay(refusal.retryAfterMs, undefined, { signal }).catch((): never => {
        throw new UnavailableError('executor_closing', 'tool-executor is shutting down; another replica goes on.');
      });
    }
  }

  /** Whether no later owner is known. */
  async isHighest(tenantId: string, sessionId: string, epoch: Epoch): Promise<boolean> {
    const known = await this.options.ledger.highestEpoch(tenantId, sessionId);
    return !known || !isLowerEpoch(epoch, known);
  }

  async highestEpoch(tenantId: string, sessionId: string): Promise<Epoch> {
    return (await this.options.ledger.highestEpoch(tenantId, sessionId)) ?? FIRST_EPOCH;
  }

  /** Greets it at that epoch, which binds it to its session. */
  async connect(ref: SandboxRef, endpoint: SandboxEndpoint, epoch: Epoch): Promise<LiveSandbox> {
    const { connections = SandboxConnection } = this.options;
    const connection = await connections.open(endpoint);
    try {
      const incarnation = await connection.hello(await this.adminToken(ref, endpoint.audience, epoch));
      return {
        ref,
        connection,
        incarnation,
        workspaceKey: '',
        className: '',
        activeCalls: 0,
        lastUsedAt: this.options.now(),
        notices: [],
        isRetired: false,
      };
    } catch (error) {
      connection.close();
      throw error;
    }
  }

  /** A token for what is asked on nobody's behalf but the session's. */
  adminToken({ tenantId, sessionId }: SandboxRef, audience: string, at: Epoch): Promise<string> {
    const { generation: storeGeneration, epoch } = at;
    return this.options.grants.token({ sandboxId: audience, tenantId, sessionId, storeGeneration, epoch });
  }
}

export function staleEpoch(): Error {
  return new FailedPreconditionError('stale_epoch', 'Another process owns the run now.');
}

function unavailable({ reason, message }: Refusal): Error {
  return new UnavailableError('sandbox_unavailable', `There is no sandbox (${reason}): ${message} Nothing was run.`);
}
