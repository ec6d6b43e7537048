import { randomBytes, timingSafeEqual } from 'node:crypto';
import { Role, subjects } from '@margay/contracts';
import {
  AlreadyExistsError,
  InvalidArgumentError,
  NotFoundError,
  PermissionDeniedError,
  UnauthenticatedError,
} from '@margay/errors';
import type { NatsBus } from '@margay/platform';
import type { AccessRepository, KeyRow, TenantChange, TenantRow } from './access.repository';
import { keyIdOf, makeKey, secretHash } from './api-key';

const SLUG = /^[a-z0-9](-?[a-z0-9]){1,38}$/;
const RESERVED_SLUGS = new Set(['platform', 'system', 'api', 'admin']);
/** Cap of running runs of a tenant that the operator makes. */
const CONCURRENT_RUNS = 50;
const WEIGHT_MIN = 1;
const WEIGHT_MAX = 100;
const KEY_TTL_DAYS = 365;
const DAY_MS = 86_400_000;
export const FIRST_TENANT = 'default';
const FIRST_PRINCIPAL = 'svc:bootstrap';

export interface Identity {
  tenantId: string;
  principal: string;
  role: Role;
  scopes: string[] | null;
}

/** Tenants and their keys. */
export class AccessService {
  constructor(
    private readonly repository: AccessRepository,
    private readonly bus: NatsBus,
    private readonly cell: string,
  ) {}

  /**
   * Who a key belongs to. Unknown, expired and revoked keys and dead tenants are told apart by nobody.
   * @param secretSha256 SHA-256 of the whole key text
   * @throws UnauthenticatedError `unauthenticated`
   */
  async authenticate(keyId: string, secretSha256: Uint8Array): Promise<Identity> {
    const key = await this.repository.findKey(keyId);
    if (!key || !isValid(key, secretSha256)) throw unauthorized();
    const [tenant, role] = await Promise.all([
      this.repository.findTenant(key.tenantId),
      this.repository.findRole(key.tenantId, key.principal),
    ]);
    if (!role || !tenant || tenant.state === 'deleted') throw unauthorized();
    return { tenantId: key.tenantId, principal: key.principal, role, scopes: key.scopes };
  }

  /** @throws InvalidArgumentError `invalid_slug`; AlreadyExistsError `slug_taken` */
  async createTenant(slug: string, name: string): Promise<string> {
    if (!SLUG.test(slug) || RESERVED_SLUGS.has(slug))
      throw new InvalidArgumentError(
        'invalid_slug',
        `'${slug}' is no slug: 2–39 lower-case letters, digits and single hyphens`,
      );
    const id = randomBytes(8).toString('hex');
    const ceilings = { concurrentRuns: CONCURRENT_RUNS };
    if (!(await this.repository.insertTenant({ ...tenantRow(id, slug, name || slug), ceilings })))
      throw new AlreadyExistsError('slug_taken', `a tenant '${slug}' exists`);
    return id;
  }

  /**
   * Changes a tenant's share of the runners and its classes of sandboxes; it acts at once, or within 5 s where the
   * announcement is lost.
   * @throws NotFoundError `tenant_not_found`; InvalidArgumentError `invalid_share`
   */
  async changeTenant(tenantId: string, change: TenantChange): Promise<void> {
    const [weight, concurrentRuns] = [change.weight ?? WEIGHT_MIN, change.concurrentRuns ?? 0];
    if (!isWholeWithin(weight, WEIGHT_MIN, WEIGHT_MAX) || !isWholeWithin(concurrentRuns, 0, Number.MAX_SAFE_INTEGER))
      throw new InvalidArgumentError(
        'invalid_share',
        `a weight is a whole number from ${WEIGHT_MIN} to ${WEIGHT_MAX}, and a cap one from 0`,
      );
    if (!(await this.repository.changeTenant(tenantId, change)))
      throw new NotFoundError('tenant_not_found', `tenant ${tenantId} not found`);
    this.bus.publish(subjects.config('tenants'), tenantId);
  }

  /** By its id or slug. @throws NotFoundError `tenant_not_found` */
  async tenant(named: string): Promise<TenantRow> {
    const row = await this.repository.findNamed(named);
    if (!row || row.state === 'deleted') throw new NotFoundError('tenant_not_found', `tenant ${named} not found`);
    return row;
  }

  /**
   * A service account with this role, and a key for it.
   * @throws NotFoundError `tenant_not_found`; InvalidArgumentError `invalid_role`; AlreadyExistsError `label_taken`
   */
  async createKey(tenantId: string, label: string, roleName: string): Promise<{ keyId: string; key: string }> {
    if (!(await this.repository.findTenant(tenantId)))
      throw new NotFoundError('tenant_not_found', `tenant ${tenantId} not found`);
    const role = Role.safeParse(roleName);
    if (!role.success || role.data === 'operator')
      throw new InvalidArgumentError(
        'invalid_role',
        `'${roleName}' is no role of a tenant: viewer, member, admin or owner`,
      );
    const { id, text, secretHash: hash } = makeKey(this.cell);
    const principal = `svc:${label || id.slice(0, 8)}`;
    await this.requireFreeLabel(tenantId, principal, role.data);
    await this.addKey({
      id,
      hash,
      tenantId,
      principal,
      label,
      role: role.data,
      expiresAt: new Date(Date.now() + KEY_TTL_DAYS * DAY_MS),
    });
    this.bus.publish(subjects.config('keys'), id);
    return { keyId: id, key: text };
  }

  /** A label names one service account: a second key under it would have the rights of the first. */
  private async requireFreeLabel(tenantId: string, principal: string, role: Role): Promise<void> {
    const present = await this.repository.findRole(tenantId, principal);
    if (present === undefined) return;
    // A crash may have left an account without its key.
    if (present === role && !(await this.repository.hasKey(tenantId, principal))) return;
    throw new AlreadyExistsError(
      'label_taken',
      `the tenant has a service account '${principal}'; choose another label`,
    );
  }

  /** Makes tenant `default` and, if its text is given, the first key. Safe to repeat and to race: its end stays. */
  async bootstrap(keyText: string | undefined, lifeSeconds = 0): Promise<void> {
    await this.repository.insertTenant(tenantRow(FIRST_TENANT, FIRST_TENANT, 'Default'));
    if (keyText === undefined) return;
    const id = keyIdOf(keyText);
    if (id === undefined)
      throw new InvalidArgumentError(
        'invalid_bootstrap_key',
        'MARGAY_BOOTSTRAP_KEY does not hold a key of the form mk_<cell>_<id>_<secret>',
      );
    await this.addKey({
      id,
      hash: secretHash(keyText),
      tenantId: FIRST_TENANT,
      principal: FIRST_PRINCIPAL,
      label: 'first key',
      role: 'owner',
      expiresAt: lifeSeconds === 0 ? null : new Date(Date.now() + lifeSeconds * 1_000),
    });
  }

  private async addKey(key: {
    id: string;
    hash: string;
    tenantId: string;
    principal: string;
    label: string;
    role: Role;
    expiresAt: Date | null;
  }): Promise<void> {
    const { id, hash, tenantId, principal, label, role, expiresAt } = key;
    const now = new Date();
    await this.repository.insertMember({ _id: `${tenantId}.${principal}`, tenantId, principal, role, addedAt: now });
    await this.repository.insertKey({
      _id: id,
      tenantId,
      principal,
      label,
      secretHash: hash,
      scopes: null,
      createdAt: now,
      expiresAt,
      revokedAt: null,
    });
  }
}

function isValid(key: KeyRow, secretSha256: Uint8Array): boolean {
  const stored = Buffer.from(key.secretHash, 'hex');
  if (stored.length !== secretSha256.length || !timingSafeEqual(stored, secretSha256)) return false;
  return key.revokedAt === null && (key.expiresAt === null || key.expiresAt > new Date());
}

function isWholeWithin(value: number, min: number, max: number): boolean {
  return Number.isInteger(value) && value >= min && value <= max;
}

function unauthorized(): Error {
  return new UnauthenticatedError('unauthenticated', 'Unauthorized');
}

function tenantRow(id: string, slug: string, name: string): TenantRow {
  return { _id: id, tenantId: id, slug, name, state: 'active', createdAt: new Date() };
}

/** @throws PermissionDeniedError `platform_operator_only` */
export function requireOperator(role: string): void {
  if (role !== 'operator')
    throw new PermissionDeniedError('platform_operator_only', 'only the platform operator may do this');
}
