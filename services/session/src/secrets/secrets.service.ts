import { subjects, type Principal, type secretsPb } from '@margay/contracts';
import { InvalidArgumentError, NotFoundError, ResourceExhaustedError } from '@margay/errors';
import { hideInLogs, type Logger, type NatsBus } from '@margay/platform';
import { CANARY } from './canary';
import { checkName, ownerFor, scopeOf, PERSONAL_MAX, SECRETS_MAX, termsOf, type SecretScope } from './secret-rules';
import { secretId, TENANT_OWNER, type SecretRepository, type SecretRow } from './secret.repository';
import { requireRev, REV_ATTEMPTS, revMoved } from '../store/revisions';
import type { Vault } from './vault';

export type SecretRows = Pick<
  SecretRepository,
  'find' | 'list' | 'listAll' | 'listGit' | 'count' | 'add' | 'replace' | 'reseal' | 'sealedWith' | 'remove' | 'noteUse'
>;

export interface SecretsPorts {
  rows: SecretRows;
  vault: Vault;
  bus: Pick<NatsBus, 'publish'>;
  logger: Logger;
  /** Called at once, before it is announced to others. */
  onChange?: (tenantId: string) => void;
  now?: () => number;
}

/** What people do with secrets: write, list and delete them. Nothing here gives a value away. */
export class SecretsService {
  private readonly now: () => number;

  constructor(private readonly ports: SecretsPorts) {
    this.now = ports.now ?? Date.now;
  }

  /** @throws PermissionDeniedError `permission_denied`; InvalidArgumentError `validation` */
  async list(principal: Principal, scope: string): Promise<SecretRow[]> {
    const scopes: SecretScope[] = scope === '' ? ['tenant', 'personal'] : [scopeOf(scope)];
    const owners = scopes.map((each) => ownerFor(principal, each));
    const found = await Promise.all(owners.map((owner) => this.ports.rows.list(principal.tenantId, owner)));
    return found.flat().filter(({ name }) => name !== CANARY);
  }

  /**
   * @throws PermissionDeniedError `permission_denied`; InvalidArgumentError `validation`; AbortedError `rev_moved`;
   * ResourceExhaustedError `limit_exceeded`
   */
  async put(
    principal: Principal,
    request: secretsPb.PutSecretRequest,
  ): Promise<{ row: SecretRow; isCreated: boolean }> {
    const { rows, vault } = this.ports;
    const owner = ownerFor(principal, scopeOf(request.scope));
    const terms = termsOf(request, this.now());
    const { name, value, ifRev } = request;
    const { tenantId } = principal;
    refuseCanary(name);
    hideInLogs(name, value);
    const _id = secretId(tenantId, owner, name);
    for (let attempt = 1; attempt <= REV_ATTEMPTS; attempt += 1) {
      const present = await rows.find(tenantId, _id);
      requireRev(`secret ${name}`, ifRev, present?.rev ?? 0);
      if (!present) await this.requireRoom(tenantId, owner);
      const slot = { _id, tenantId, rev: (present?.rev ?? 0) + 1 };
      const written = { updatedBy: principal.principal, updatedAt: new Date(this.now()) };
      const row: SecretRow = { ...slot, owner, name, ...terms, ...(await vault.seal(slot, value)), ...written };
      const isWritten = present ? await rows.replace(row, present.rev) : await rows.add(row);
      if (!isWritten) continue;
      this.announce(principal, present ? 'secret.update' : 'secret.create', row);
      return { row, isCreated: !present };
    }
    throw revMoved(`secret ${name}`);
  }

  /** @throws PermissionDeniedError `permission_denied`; NotFoundError `secret_not_found`; AbortedError `rev_moved` */
  async remove(principal: Principal, { scope, name, ifRev }: secretsPb.DeleteSecretRequest): Promise<void> {
    const { rows } = this.ports;
    const { tenantId } = principal;
    const owner = ownerFor(principal, scopeOf(scope));
    checkName(name);
    refuseCanary(name);
    for (let attempt = 1; attempt <= REV_ATTEMPTS; attempt += 1) {
      const row = await rows.find(tenantId, secretId(tenantId, owner, name));
      if (!row) throw secretNotFound(name);
      requireRev(`secret ${name}`, ifRev, row.rev);
      if (!(await rows.remove(tenantId, row._id, row.rev))) continue;
      this.announce(principal, 'secret.delete', row);
      return;
    }
    throw revMoved(`secret ${name}`);
  }

  private async requireRoom(tenantId: string, owner: string): Promise<void> {
    requireBelow('secrets', await this.ports.rows.count(tenantId), SECRETS_MAX);
    if (owner === TENANT_OWNER) return;
    requireBelow('personal_secrets', await this.ports.rows.count(tenantId, owner), PERSONAL_MAX);
  }

  private announce({ tenantId, principal, keyId, requestId }: Principal, action: string, row: SecretRow): void {
    const target = { type: 'secret', name: row.name, scope: scopeName(row), rev: row.rev };
    this.ports.logger.info(
      { audit: { action, tenantId, principal, keyId, requestId, target } },
      'a secret was changed',
    );
    this.ports.onChange?.(tenantId);
    this.ports.bus.publish(subjects.config('secrets'), tenantId);
  }
}

export const scopeName = ({ owner }: Pick<SecretRow, 'owner'>): SecretScope =>
  owner === TENANT_OWNER ? 'tenant' : 'personal';

export function secretNotFound(name: string) {
  return new NotFoundError('secret_not_found', `secret ${name} not found`);
}

function refuseCanary(name: string): void {
  if (name === CANARY) throw new InvalidArgumentError('validation', `Invalid input: 'name' ${CANARY} is Margay's own`);
}

function requireBelow(limit: string, used: number, max: number): void {
  if (used < max) return;
  const details = { limit, max, used };
  throw new ResourceExhaustedError('limit_exceeded', `${limit}: ${used} of ${max}`, { details });
}
