import { randomBytes } from 'node:crypto';
import { FailedPreconditionError, InternalError, isMargayError, NotFoundError, UnavailableError } from '@margay/errors';
import { LRUCache } from 'lru-cache';
import type { DataKeyRepository, DataKeyRow } from './data-key.repository';
import type { KeyEncryption } from './key-encryption';
import { KEY_BYTES, type Place } from './seal';

/** Random nonces of 96 bits stay far from meeting within so many uses. */
const USES_MAX = 2 ** 20;
const AGE_MAX_MS = 365 * 86_400_000;
const ATTEMPTS = 5;
const CACHED_KEYS = 10_000;

export type DataKeyRows = Pick<DataKeyRepository, 'find' | 'add' | 'retire' | 'countUse' | 'rewrap' | 'all'>;

export interface DataKey {
  id: string;
  /** Among those of its tenant. */
  place: number;
  key: Buffer;
}

/** The data keys of tenants: made when they are first needed, and replaced after a year or a million uses. */
export class DataKeys {
  private readonly opened = new LRUCache<string, Buffer>({ max: CACHED_KEYS });

  constructor(
    private readonly rows: DataKeyRows,
    private readonly kek: KeyEncryption,
    private readonly now: () => number = Date.now,
  ) {}

  /** The key that seals at present. @throws NotFoundError `tenant_not_found` */
  async current(tenantId: string): Promise<DataKey> {
    for (let attempt = 1; attempt <= ATTEMPTS; attempt += 1) {
      const rows = await this.rowsOf(tenantId);
      const place = rows.length - 1;
      const newest = rows[place];
      if (newest && !this.isWorn(newest)) return { id: newest.id, place, key: await this.open(tenantId, newest) };
      if (await this.rows.add(tenantId, rows.length, await this.make(tenantId)))
        for (let old = 0; old <= place; old += 1) await this.rows.retire(tenantId, old, new Date(this.now()));
    }
    throw new UnavailableError(
      'data_key_contended',
      `The data key of tenant ${tenantId} is being replaced; try again.`,
    );
  }

  /** @throws InternalError `data_key_unknown` where the tenant has no such key */
  async get(tenantId: string, id: string): Promise<Buffer> {
    const known = this.opened.get(`${tenantId}/${id}`);
    if (known) return known;
    const row = (await this.rowsOf(tenantId)).find((found) => found.id === id);
    if (!row) throw new InternalError('data_key_unknown', `Tenant ${tenantId} has no data key ${id}.`);
    return this.open(tenantId, row);
  }

  async countUse(tenantId: string, { place }: DataKey): Promise<void> {
    await this.rows.countUse(tenantId, place);
  }

  /** Tenants with data keys that something may still be sealed with although they seal no more, and those keys. */
  async *retired(): AsyncIterable<{ tenantId: string; ids: string[] }> {
    for await (const { tenantId, deks } of this.rows.all()) {
      const ids = deks.slice(0, -1).map(({ id }) => id);
      if (ids.length > 0) yield { tenantId, ids };
    }
  }

  /**
   * Stops a start that could open nothing.
   * @throws FailedPreconditionError `kek_missing`, naming the key-encryption keys that are in use and not there, or that
   * are others than those of this name that were used: none of what they are to have wrapped opens
   */
  async requireKeks(): Promise<void> {
    const missing = new Set<string>();
    const good = new Set<string>();
    for await (const { tenantId, deks } of this.rows.all())
      for (const row of deks) {
        if (good.has(row.kid)) continue;
        if (await this.opens(tenantId, row)) good.add(row.kid);
        else missing.add(row.kid);
      }
    for (const kid of good) missing.delete(kid);
    if (missing.size === 0) return;
    const kids = [...missing].sort().join(', ');
    const message = `Data keys of tenants are wrapped with ${kids}, which MARGAY_KEK_FILE does not have, or only as another key: put the right one back, and remove a key only after \`margay.cjs secrets rotate-kek\` says that nothing needs it.`;
    throw new FailedPreconditionError('kek_missing', message);
  }

  /**
   * Wraps every data key with the active key-encryption key. Safe to repeat, to break off and to run beside itself.
   * @returns how many were wrapped anew, and how many each other key-encryption key still holds
   */
  async rewrapAll(): Promise<{ rewrapped: number; left: Map<string, number> }> {
    const left = new Map<string, number>();
    let rewrapped = 0;
    for await (const { tenantId, deks } of this.rows.all())
      for (const [place, row] of deks.entries()) {
        if (row.kid === this.kek.activeKid) continue;
        const key = await this.kek.unwrap(row, placeOf(tenantId, row.id));
        const next = await this.kek.wrap(key, placeOf(tenantId, row.id));
        if (await this.rows.rewrap(tenantId, place, row.kid, next)) rewrapped += 1;
      }
    for await (const { deks } of this.rows.all())
      for (const { kid } of deks) if (kid !== this.kek.activeKid) left.set(kid, (left.get(kid) ?? 0) + 1);
    return { rewrapped, left };
  }

  private async opens(tenantId: string, row: DataKeyRow): Promise<boolean> {
    if (!this.kek.has(row.kid)) return false;
    try {
      await this.kek.unwrap(row, placeOf(tenantId, row.id));
      return true;
    } catch (error) {
      if (isMargayError(error) && error.reason === 'unreadable_ciphertext') return false;
      throw error;
    }
  }

  private isWorn({ uses, createdAt }: DataKeyRow): boolean {
    return uses >= USES_MAX || this.now() - createdAt.getTime() >= AGE_MAX_MS;
  }

  private async rowsOf(tenantId: string): Promise<DataKeyRow[]> {
    const rows = await this.rows.find(tenantId);
    if (!rows) throw new NotFoundError('tenant_not_found', `tenant ${tenantId} not found`);
    return rows;
  }

  private async make(tenantId: string): Promise<DataKeyRow> {
    const id = randomBytes(4).toString('hex');
    const wrapped = await this.kek.wrap(randomBytes(KEY_BYTES), placeOf(tenantId, id));
    return { id, ...wrapped, createdAt: new Date(this.now()), retiredAt: null, uses: 0 };
  }

  private async open(tenantId: string, row: DataKeyRow): Promise<Buffer> {
    const known = this.opened.get(`${tenantId}/${row.id}`);
    if (known) return known;
    const key = await this.kek.unwrap(row, placeOf(tenantId, row.id));
    this.opened.set(`${tenantId}/${row.id}`, key);
    return key;
  }
}

/** Rewrapping changes no place, so that it can be repeated. */
function placeOf(tenantId: string, id: string): Place {
  return { tenantId, collection: 'tenants', id: tenantId, field: `deks.${id}`, rev: 0 };
}
