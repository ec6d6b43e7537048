import { CANARY } from '../secrets/canary';
import type { DataKeyRow } from '../secrets/data-key.repository';
import type { DataKeyRows } from '../secrets/data-keys';
import type { SecretRow } from '../secrets/secret.repository';
import type { SecretRows } from '../secrets/secrets.service';

/** Data keys of tenants in memory. */
export class MemoryDataKeys implements DataKeyRows {
  readonly tenants = new Map<string, DataKeyRow[]>();

  find(tenantId: string) {
    return Promise.resolve(structuredClone(this.tenants.get(tenantId)));
  }

  add(tenantId: string, place: number, row: DataKeyRow) {
    const rows = this.tenants.get(tenantId);
    if (rows?.length !== place) return Promise.resolve(false);
    rows.push(structuredClone(row));
    return Promise.resolve(true);
  }

  retire(tenantId: string, place: number, at: Date) {
    const row = this.at(tenantId, place);
    row.retiredAt ??= at;
    return Promise.resolve();
  }

  countUse(tenantId: string, place: number) {
    this.at(tenantId, place).uses += 1;
    return Promise.resolve();
  }

  rewrap(tenantId: string, place: number, fromKid: string, to: Pick<DataKeyRow, 'kid' | 'wrapped'>) {
    const row = this.at(tenantId, place);
    if (row.kid !== fromKid) return Promise.resolve(false);
    Object.assign(row, { kid: to.kid, wrapped: to.wrapped });
    return Promise.resolve(true);
  }

  async *all() {
    for (const [tenantId, deks] of this.tenants)
      if (deks.length > 0) yield await Promise.resolve({ tenantId, deks: structuredClone(deks) });
  }

  private at(tenantId: string, place: number): DataKeyRow {
    const row = this.tenants.get(tenantId)?.[place];
    if (!row) throw new Error(`no data key ${place} of ${tenantId}`);
    return row;
  }
}

/** The collection `secrets` in memory. */
export class MemorySecrets implements SecretRows {
  readonly rows = new Map<string, SecretRow>();

  find(tenantId: string, id: string) {
    const row = this.rows.get(id);
    return Promise.resolve(row?.tenantId === tenantId ? structuredClone(row) : undefined);
  }

  list(tenantId: string, owner: string) {
    const found = this.of(tenantId).filter((row) => row.owner === owner);
    return Promise.resolve(found.sort((a, b) => (a.name < b.name ? -1 : 1)));
  }

  listAll(tenantId: string) {
    return Promise.resolve(this.of(tenantId));
  }

  async listGit(tenantId: string, owner: string, host: string) {
    return (await this.list(tenantId, owner)).filter(({ git }) => git?.host === host);
  }

  count(tenantId: string, owner?: string) {
    const counted = this.of(tenantId).filter(({ name }) => name !== CANARY);
    return Promise.resolve(counted.filter((row) => owner === undefined || row.owner === owner).length);
  }

  add(row: SecretRow) {
    if (this.rows.has(row._id)) return Promise.resolve(false);
    this.rows.set(row._id, structuredClone(row));
    return Promise.resolve(true);
  }

  replace(row: SecretRow, fromRev: number) {
    if (this.rows.get(row._id)?.rev !== fromRev) return Promise.resolve(false);
    this.rows.set(row._id, structuredClone(row));
    return Promise.resolve(true);
  }

  reseal({ _id, rev, dekId }: SecretRow, next: Parameters<SecretRows['reseal']>[1]) {
    const row = this.rows.get(_id);
    if (row?.rev !== rev || row.dekId !== dekId) return Promise.resolve(false);
    Object.assign(row, next);
    return Promise.resolve(true);
  }

  sealedWith(tenantId: string, dekIds: readonly string[], limit: number) {
    const found = this.of(tenantId).filter(({ dekId }) => dekIds.includes(dekId));
    return Promise.resolve(found.slice(0, limit));
  }

  remove(tenantId: string, id: string, rev: number) {
    const row = this.rows.get(id);
    if (row?.tenantId !== tenantId || row.rev !== rev) return Promise.resolve(false);
    return Promise.resolve(this.rows.delete(id));
  }

  noteUse(_tenantId: string, id: string, at: Date) {
    const row = this.rows.get(id);
    if (row) row.lastUsedAt = at;
    return Promise.resolve();
  }

  private of(tenantId: string): SecretRow[] {
    return [...this.rows.values()].filter((row) => row.tenantId === tenantId).map((row) => structuredClone(row));
  }
}
