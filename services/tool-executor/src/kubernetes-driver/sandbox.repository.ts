import type { Collection, Filter } from 'mongodb';
import { isDuplicateKey, translateStoreError } from '@margay/platform';
import {
  BOUND_STATES,
  FINAL_STATES,
  LIVE_STATES,
  type NewSandboxRow,
  type SandboxRow,
  type SandboxState,
} from './sandbox-row';

export type SandboxChange = Partial<Omit<SandboxRow, '_id' | 'rev' | 'createdAt' | 'driver'>>;

/** `changed`: somebody else wrote first; `taken`: the claim key belongs to another row. */
export type Changed = SandboxRow | 'changed' | 'taken';

const FINAL_MS = 7 * 24 * 3_600_000;
const ALL_MAX = 5_000;
/** Of those at most one is a session's; others have ended, or lost the race for its claim key. */
const LATEST = 5;

/** The collection `sandboxes`. A row is changed only as it was read. */
export class SandboxRepository {
  constructor(
    private readonly rows: Collection<SandboxRow>,
    /** Told of each step to its end that is stored. */
    private readonly onEnd: (sandboxId: string) => void = () => undefined,
  ) {}

  /** Before anything is written. */
  async createIndexes(): Promise<void> {
    await this.rows.createIndex({ claimKey: 1 }, { name: 'claim_v1', unique: true });
    await this.rows.createIndex({ pool: 1, state: 1, createdAt: 1 }, { name: 'pool_v1' });
    await this.rows.createIndex({ state: 1 }, { name: 'state_v1' });
    await this.rows.createIndex({ sessionId: 1, attempt: -1 }, { name: 'session_v1' });
    await this.rows.createIndex({ tenantId: 1, state: 1, lastActiveAt: 1 }, { name: 'tenant_v1' });
    await this.rows.createIndex({ expiresAt: 1 }, { name: 'expiry_v1', expireAfterSeconds: 0 });
  }

  /** @returns undefined if there is one with this id or claim key */
  async insert(row: NewSandboxRow): Promise<SandboxRow | undefined> {
    const whole: SandboxRow = { ...row, driver: 'kubernetes', createdAt: new Date(), rev: 1 };
    try {
      await this.rows.insertOne(whole);
      return whole;
    } catch (error) {
      if (isDuplicateKey(error)) return undefined;
      throw translateStoreError(error);
    }
  }

  /**
   * The same for a claim key that others may want again later. It is set by a change: the store of laptops and tests never
   * frees a unique key that came with an insert.
   */
  async insertClaimed(row: NewSandboxRow): Promise<SandboxRow | undefined> {
    const inserted = await this.insert({ ...row, claimKey: `new/${row._id}` });
    const claimed = inserted && (await this.change(inserted, { claimKey: row.claimKey }));
    if (inserted && claimed === 'taken') await this.rows.deleteOne({ _id: row._id, rev: inserted.rev }).catch(rethrow);
    return typeof claimed === 'string' ? undefined : claimed;
  }

  /** Compare and set. @returns the row as it is then */
  async change(row: SandboxRow, change: SandboxChange): Promise<Changed> {
    const { _id, rev } = row;
    try {
      const update = { $set: { ...change, rev: rev + 1 } };
      const { matchedCount } = await this.rows.updateOne({ _id, rev }, update);
      return matchedCount === 1 ? { ...row, ...change, rev: rev + 1 } : 'changed';
    } catch (error) {
      if (isDuplicateKey(error)) return 'taken';
      throw translateStoreError(error);
    }
  }

  /** It is nobody's from now on, whatever remains to be done. */
  async finish(row: SandboxRow, state: SandboxState, reason: string): Promise<Changed> {
    const now = Date.now();
    const isOver = (FINAL_STATES as readonly string[]).includes(state);
    const over = isOver ? { expiresAt: new Date(now + FINAL_MS) } : {};
    const endedAt = row.endedAt ?? new Date(now);
    const finished = await this.change(row, { state, reason, claimKey: `x/${row._id}`, endedAt, ...over });
    if (typeof finished !== 'string') this.onEnd(row._id);
    return finished;
  }

  find(id: string): Promise<SandboxRow | undefined> {
    return this.one({ _id: id });
  }

  findByClaimKey(claimKey: string): Promise<SandboxRow | undefined> {
    return this.one({ claimKey });
  }

  /** Whatever became of it: the last one a session had. */
  async findLatest(tenantId: string, sessionId: string): Promise<SandboxRow | undefined> {
    return (await this.many({ sessionId, tenantId }, { attempt: -1 }, 1))[0];
  }

  /** The one it has or will have, of whatever class. */
  async findClaimedBy(tenantId: string, sessionId: string): Promise<SandboxRow | undefined> {
    const latest = await this.many({ sessionId, tenantId }, { attempt: -1 }, LATEST);
    return latest.find(({ claimKey }) => claimKey.startsWith('s/') || claimKey.startsWith('u/'));
  }

  oldestWarm(pool: string, limit: number): Promise<SandboxRow[]> {
    return this.many({ pool, state: 'warm' }, { createdAt: 1 }, limit);
  }

  /** Those of a pool that no session has. */
  listPool(pool: string): Promise<SandboxRow[]> {
    return this.many({ pool, state: { $in: ['warming', 'warm'] } }, { createdAt: 1 }, ALL_MAX);
  }

  /** The last ones of a pool that came to an end. */
  listRecent(pool: string, since: Date): Promise<SandboxRow[]> {
    return this.many({ pool, createdAt: { $gte: since } }, { createdAt: -1 }, ALL_MAX);
  }

  /** Of all tenants, for upkeep only. */
  listLive(): Promise<SandboxRow[]> {
    return this.many({ state: { $in: [...LIVE_STATES] } }, { _id: 1 }, ALL_MAX);
  }

  /** How many sandboxes a tenant has, counted up to a limit. */
  countBound(tenantId: string, limit: number): Promise<number> {
    return this.rows.countDocuments({ tenantId, state: { $in: [...BOUND_STATES] } }, { limit }).catch(rethrow);
  }

  async findIdle(tenantId: string, before: Date): Promise<SandboxRow | undefined> {
    const idle: Filter<SandboxRow> = { tenantId, state: 'ready', lastActiveAt: { $lt: before } };
    return (await this.many(idle, { lastActiveAt: 1 }, 1))[0];
  }

  /** One that was bound since and of which the cluster has yet to hear. */
  findClaimed(workspaceId: string, since: Date): Promise<SandboxRow | undefined> {
    return this.one({ state: 'claimed', workspaceId, claimedAt: { $gte: since } });
  }

  async touch(id: string): Promise<void> {
    const bound = { _id: id, state: { $in: [...BOUND_STATES] } };
    await this.rows.updateOne(bound, { $set: { lastActiveAt: new Date() } }).catch(rethrow);
  }

  async noteSaved(id: string, at: Date): Promise<void> {
    await this.rows.updateOne({ _id: id }, { $set: { savedAt: at }, $unset: { unsaved: '' } }).catch(rethrow);
  }

  async noteUnsaved(id: string, reason: string): Promise<void> {
    await this.rows.updateOne({ _id: id }, { $set: { unsaved: reason } }).catch(rethrow);
  }

  /** It is not stopped for being idle until then. */
  async spare(id: string, until: Date): Promise<void> {
    await this.rows.updateOne({ _id: id }, { $set: { sparedUntil: until } }).catch(rethrow);
  }

  private async one(filter: Filter<SandboxRow>): Promise<SandboxRow | undefined> {
    return (await this.rows.findOne(filter).catch(rethrow)) ?? undefined;
  }

  private many(filter: Filter<SandboxRow>, sort: Record<string, 1 | -1>, limit: number): Promise<SandboxRow[]> {
    return this.rows.find(filter).sort(sort).limit(limit).toArray().catch(rethrow) as Promise<SandboxRow[]>;
  }
}

function rethrow(error: unknown): never {
  throw translateStoreError(error);
}
