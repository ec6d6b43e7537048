import type { Collection, Filter } from 'mongodb';
import { isDuplicateKey, translateStoreError } from '@margay/platform';
import { GuardStore, type GuardedCall, type GuardRow, type Seen, type StoredResult } from './guard-store';

type GuardDocument = Omit<GuardRow, 'callId'> & {
  _id: string;
  /** For people. */
  at: Date;
  expiresAt: Date;
};

interface RankDocument {
  _id: string;
  tenantId: string;
  rank: number;
  expiresAt: Date;
}

const DAY_MS = 24 * 3_600_000;
/** No run waits longer for somebody to ask again for one of its calls, which may be repeated without harm. */
const KEPT_MS = 7 * DAY_MS;
/**
 * An effect without its row would be made again: a run that was in the middle of one when everything was switched off goes
 * on whenever that is switched on. The keys of services last for days only.
 */
const EFFECT_KEPT_MS = 90 * DAY_MS;

/** The collections `toolCalls` and `outsideEpochs`. */
export class MongoGuardStore extends GuardStore {
  constructor(
    private readonly calls: Collection<GuardDocument>,
    private readonly ranks: Collection<RankDocument>,
  ) {
    super();
  }

  /** Before anything is written. The server deletes by these; `expire` does where it does not. */
  async createIndexes(): Promise<void> {
    const expiry = { name: 'expiry_v1', expireAfterSeconds: 0 };
    await this.calls.createIndex({ expiresAt: 1 }, expiry);
    await this.ranks.createIndex({ expiresAt: 1 }, expiry);
    await this.calls.createIndex({ sessionId: 1, state: 1 }, { name: 'session_state_v1' });
  }

  async insert({ callId, ...call }: GuardedCall, process: string): Promise<boolean> {
    const first = { state: 'sent', process, beat: 0, isCancelled: false } as const;
    try {
      const expiresAt = expiry(call.effect === 'pure' ? KEPT_MS : EFFECT_KEPT_MS);
      await this.calls.insertOne({ _id: callId, ...call, ...first, at: new Date(), expiresAt });
      return true;
    } catch (error) {
      if (isDuplicateKey(error)) return false;
      throw translateStoreError(error);
    }
  }

  async find(callId: string): Promise<GuardRow | undefined> {
    const document = await this.calls.findOne({ _id: callId }).catch(rethrow);
    return document ? rowOf(document) : undefined;
  }

  async beat(process: string, callIds: readonly string[]): Promise<GuardRow[]> {
    const ids = { $in: [...callIds] };
    await this.calls.updateMany({ _id: ids, process, state: 'sent' }, { $inc: { beat: 1 } }).catch(rethrow);
    const documents = await this.calls.find({ _id: ids }).toArray().catch(rethrow);
    return documents.map(rowOf);
  }

  finish(callId: string, process: string, result: StoredResult): Promise<boolean> {
    return this.change({ _id: callId, process }, { state: 'done', result });
  }

  settle({ callId, process, beat }: Seen, result: StoredResult): Promise<boolean> {
    return this.change({ _id: callId, process, beat }, { state: 'done', result });
  }

  take({ callId, process: former, beat }: Seen, process: string, rank: number): Promise<boolean> {
    return this.change({ _id: callId, process: former, beat }, { process, rank, beat: beat + 1 });
  }

  async release(callId: string, process: string): Promise<void> {
    await this.change({ _id: callId, process }, { process: '' });
  }

  async remove(callId: string, process: string): Promise<void> {
    await this.calls.deleteOne({ _id: callId, process, state: 'sent' }).catch(rethrow);
  }

  async cancel(callId: string): Promise<void> {
    await this.change({ _id: callId }, { isCancelled: true });
  }

  async cancelBelow(tenantId: string, sessionId: string, rank: number): Promise<void> {
    const meant: Filter<GuardDocument> = { tenantId, sessionId, state: 'sent', rank: { $lt: rank } };
    await this.calls.updateMany(meant, { $set: { isCancelled: true } }).catch(rethrow);
  }

  async raise(tenantId: string, sessionId: string, rank: number): Promise<number> {
    const change = { $max: { rank }, $set: { expiresAt: expiry(EFFECT_KEPT_MS) }, $setOnInsert: { tenantId } };
    const options = { upsert: true, returnDocument: 'after' } as const;
    for (;;) {
      try {
        const row = await this.ranks.findOneAndUpdate({ _id: `${tenantId}/${sessionId}` }, change, options);
        return row?.rank ?? rank;
      } catch (error) {
        // Of two first ones at once the loser finds the winner's row.
        if (!isDuplicateKey(error)) throw translateStoreError(error);
      }
    }
  }

  async expire(now = new Date()): Promise<void> {
    await this.calls.deleteMany({ expiresAt: { $lt: now } }).catch(rethrow);
    await this.ranks.deleteMany({ expiresAt: { $lt: now } }).catch(rethrow);
  }

  /** Of a call without a result. */
  private async change(seen: Filter<GuardDocument>, change: Partial<GuardDocument>): Promise<boolean> {
    const { matchedCount } = await this.calls.updateOne({ ...seen, state: 'sent' }, { $set: change }).catch(rethrow);
    return matchedCount === 1;
  }
}

function rowOf({ _id, at: _at, expiresAt: _expiresAt, ...row }: GuardDocument): GuardRow {
  return { callId: _id, ...row };
}

const expiry = (keptMs: number): Date => new Date(Date.now() + keptMs);

function rethrow(error: unknown): never {
  throw translateStoreError(error);
}
