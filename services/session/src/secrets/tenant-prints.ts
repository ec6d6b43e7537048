import { randomBytes } from 'node:crypto';
import { setImmediate as othersTurn } from 'node:timers/promises';
import { subjects } from '@margay/contracts';
import { isMargayError } from '@margay/errors';
import {
  printsOf,
  SecretMatcher,
  type Logger,
  type NamedSecret,
  type NatsBus,
  type SecretPrint,
} from '@margay/platform';
import { LRUCache } from 'lru-cache';
import { CANARY, newCanary } from './canary';
import { secretId, TENANT_OWNER, type SecretRow } from './secret.repository';
import type { SecretRows } from './secrets.service';
import type { Vault } from './vault';

const TENANTS_MAX = 1_000;
/** Changes are announced; this is for announcements that got lost. */
const KEPT_MS = 60_000;

export interface TenantPrintsPorts {
  rows: Pick<SecretRows, 'find' | 'add' | 'listAll'>;
  vault: Vault;
  bus: Pick<NatsBus, 'subscribe'>;
  logger: Logger;
  now?: () => number;
}

export interface Prints {
  etag: string;
  key: Buffer;
  prints: SecretPrint[];
  matcher: SecretMatcher;
}

interface Made extends Prints {
  /** By what a row holds: whoever deletes a secret and writes it anew begins at the same revision. */
  byRow: ReadonlyMap<string, SecretPrint[]>;
}

/** By what the secrets of a tenant are found in texts. Those that have changed are made anew; no value is kept. */
export class TenantPrints {
  private readonly made = new LRUCache<string, Made>({ max: TENANTS_MAX });
  private readonly known = new LRUCache<string, Promise<Prints>>({ max: TENANTS_MAX, ttl: KEPT_MS });
  private readonly unsubscribe: () => void;

  constructor(private readonly ports: TenantPrintsPorts) {
    const forget = (data: Uint8Array) => this.forget(Buffer.from(data).toString());
    this.unsubscribe = ports.bus.subscribe(subjects.config('secrets'), forget);
  }

  of(tenantId: string): Promise<Prints> {
    const known = this.known.get(tenantId);
    if (known) return known;
    const loading = this.load(tenantId);
    this.known.set(tenantId, loading);
    loading.catch(() => this.known.delete(tenantId));
    return loading;
  }

  forget(tenantId: string): void {
    this.known.delete(tenantId);
  }

  close(): void {
    this.unsubscribe();
  }

  private async load(tenantId: string): Promise<Prints> {
    await this.ensureCanary(tenantId);
    const rows = await this.ports.rows.listAll(tenantId);
    const former = this.made.get(tenantId);
    const key = former?.key ?? randomBytes(32);
    const byRow = new Map<string, SecretPrint[]>();
    for (const row of rows) {
      const content = `${row._id} ${row.nonce}`;
      const prints = former?.byRow.get(content) ?? (await this.printsFor(key, row));
      if (prints) byRow.set(content, prints);
    }
    if (former?.byRow.size === byRow.size && [...byRow.keys()].every((content) => former.byRow.has(content)))
      return former;
    const prints = [...byRow.values()].flat();
    const etag = randomBytes(8).toString('hex');
    const made = { etag, key, prints, matcher: new SecretMatcher(key, prints), byRow };
    this.made.set(tenantId, made);
    return made;
  }

  /** Those of a large secret take a while. */
  private async printsFor(key: Buffer, row: SecretRow): Promise<SecretPrint[] | undefined> {
    const secret = await this.opened(row);
    if (!secret) return undefined;
    await othersTurn();
    return printsOf(key, [secret]);
  }

  /** One that nobody can open, nobody can use either. */
  private async opened(row: SecretRow): Promise<NamedSecret | undefined> {
    const { tenantId, name } = row;
    try {
      return { name, owner: row.owner === TENANT_OWNER ? '' : row.owner, value: await this.ports.vault.open(row) };
    } catch (error) {
      this.ports.logger.error({ err: error, tenantId, secret: name }, 'a secret cannot be opened, so it is not masked');
      return undefined;
    }
  }

  private async ensureCanary(tenantId: string): Promise<void> {
    const { rows, vault } = this.ports;
    const _id = secretId(tenantId, TENANT_OWNER, CANARY);
    if (await rows.find(tenantId, _id)) return;
    const slot = { _id, tenantId, rev: 1 };
    try {
      const sealed = await vault.seal(slot, newCanary());
      const terms = { owner: TENANT_OWNER, name: CANARY, kind: 'opaque' } as const;
      const written = { updatedBy: 'system:session', updatedAt: new Date(this.ports.now?.() ?? Date.now()) };
      await rows.add({ ...slot, ...terms, uses: [], hosts: [], ...sealed, ...written });
    } catch (error) {
      // A tenant that is not there, or not any more, has no secrets.
      if (!isMargayError(error) || error.reason !== 'tenant_not_found') throw error;
    }
  }
}
