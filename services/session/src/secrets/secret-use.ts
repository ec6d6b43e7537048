import type { Principal, secretsPb } from '@margay/contracts';
import { InvalidArgumentError, PermissionDeniedError } from '@margay/errors';
import { hideInLogs, type Logger } from '@margay/platform';
import { LRUCache } from 'lru-cache';
import type { SessionLog } from '../commits/session-log';
import { CANARY, tellCanaryHit, type SecretHits } from './canary';
import { checkName, covers, isBelow } from './secret-rules';
import { secretId, TENANT_OWNER, type SecretRow } from './secret.repository';
import { scopeName, secretNotFound, type SecretRows } from './secrets.service';
import type { Vault } from './vault';

/** What each service may use secrets for. */
const PURPOSES: ReadonlyMap<string, ReadonlySet<string>> = new Map([['system:egress', new Set(['egress', 'git'])]]);
const REMEMBERED_USES = 10_000;
/** A use is written down at most so often for each secret. */
const NOTE_EVERY_MS = 60_000;

export interface SecretUsePorts {
  rows: Pick<SecretRows, 'find' | 'listGit' | 'noteUse'>;
  vault: Vault;
  log: Pick<SessionLog, 'confirmedTip'>;
  logger: Logger;
  hits: SecretHits;
  now?: () => number;
}

export interface UsedSecret {
  row: SecretRow;
  value: string;
}

/** Gives values to services, for what the secret is meant for and nothing else. */
export class SecretUse {
  private readonly now: () => number;
  private readonly audited = new LRUCache<string, true>({ max: REMEMBERED_USES });
  private readonly noted = new LRUCache<string, true>({ max: REMEMBERED_USES, ttl: NOTE_EVERY_MS });

  constructor(private readonly ports: SecretUsePorts) {
    this.now = ports.now ?? Date.now;
  }

  /** @throws PermissionDeniedError `secret_use_denied`; NotFoundError `secret_not_found`; InvalidArgumentError `validation` */
  async use(caller: Principal, request: secretsPb.UseSecretRequest): Promise<UsedSecret> {
    const { purpose, host } = request;
    if (PURPOSES.get(caller.principal)?.has(purpose) !== true)
      throw new PermissionDeniedError('secret_use_denied', `${caller.principal} may not use secrets for ${purpose}`);
    if (request.name === CANARY) this.tellCanary(caller, request.sessionId);
    const run = await this.runIn(caller.tenantId, request.sessionId);
    const owners = [...(run ? [run.principal] : []), TENANT_OWNER];
    const living = (await this.candidates(caller.tenantId, owners, request)).filter((row) => !this.isExpired(row));
    const row = living.find((found) => found.uses.includes(purpose) && mayGoTo(found, host));
    const label = request.name === '' ? `for ${request.git?.host ?? ''}` : request.name;
    if (!row && living.length === 0) throw secretNotFound(label);
    if (!row)
      throw new PermissionDeniedError('secret_use_denied', `secret ${label} may not be used for ${purpose} at ${host}`);
    const value = await this.ports.vault.open(row);
    hideInLogs(row.name, value);
    this.tell(caller, request, row, run?.id);
    return { row, value };
  }

  /** It is for nothing: who asks for it has seen what nobody is shown. */
  private tellCanary({ tenantId, principal }: Principal, sessionId: string): void {
    const { logger, hits } = this.ports;
    tellCanaryHit(logger, hits, { tenantId, principal, sessionId, place: 'use' });
  }

  /** Those that are meant, the best first. */
  private async candidates(
    tenantId: string,
    owners: readonly string[],
    { name, git }: secretsPb.UseSecretRequest,
  ): Promise<SecretRow[]> {
    const { rows } = this.ports;
    if (name !== '') {
      checkName(name);
      const found = await Promise.all(owners.map((owner) => rows.find(tenantId, secretId(tenantId, owner, name))));
      return found.filter((row) => row !== undefined);
    }
    if (!git) throw new InvalidArgumentError('validation', 'a secret is used by its name or for a git repository');
    const host = git.host.toLowerCase();
    const path = git.path.replace(/^\/+/, '');
    const found = (await Promise.all(owners.map((owner) => rows.listGit(tenantId, owner, host)))).flat();
    const prefixLength = ({ git: account }: SecretRow): number => account?.pathPrefix.length ?? 0;
    return found
      .filter((row) => isBelow(row.git?.pathPrefix ?? '', path))
      .sort((a, b) => prefixLength(b) - prefixLength(a)); // stable: of equals a member's own comes first
  }

  /** The run under way in the session, whose starter's own secrets serve. */
  private async runIn(tenantId: string, sessionId: string): Promise<{ id: string; principal: string } | undefined> {
    if (sessionId === '') return undefined;
    // What this replica remembers may be of a run that another replica has ended, and of another member.
    const { head } = await this.ports.log.confirmedTip(sessionId);
    return head.tenantId === tenantId ? (head.run ?? undefined) : undefined;
  }

  private isExpired({ expiresAt }: SecretRow): boolean {
    return expiresAt !== undefined && expiresAt.getTime() <= this.now();
  }

  /** Told once for each run; outside of runs each time. */
  private tell(
    caller: Principal,
    request: secretsPb.UseSecretRequest,
    row: SecretRow,
    runId: string | undefined,
  ): void {
    const { logger, rows } = this.ports;
    const { tenantId, _id, rev, name } = row;
    const { purpose, host, sessionId } = request;
    const key = `${runId}/${_id}/${rev}/${purpose}`;
    if (runId === undefined || !this.audited.has(key)) {
      const target = { type: 'secret', name, scope: scopeName(row), rev };
      const where = { tenantId, principal: caller.principal, sessionId, runId, purpose, host };
      logger.info({ audit: { action: 'secret.use', ...where, target } }, 'a secret was used');
      this.audited.set(key, true);
    }
    if (this.noted.has(_id)) return;
    this.noted.set(_id, true);
    rows
      .noteUse(tenantId, _id, new Date(this.now()))
      .catch((error: unknown) => logger.debug({ err: error }, 'a use of a secret could not be noted'));
  }
}

function mayGoTo({ git, hosts }: SecretRow, host: string): boolean {
  return host.toLowerCase() === git?.host || covers(hosts, host);
}
