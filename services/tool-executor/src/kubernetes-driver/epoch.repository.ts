import type { Collection } from 'mongodb';
import { isDuplicateKey, translateStoreError } from '@margay/platform';
import type { Epoch } from '../driver/epoch';

export interface EpochRow {
  /** `<tenant>/<session>`. */
  _id: string;
  tenantId: string;
  rank: number;
  expiresAt: Date;
}

/** Epochs of one generation; a session does not get that far. */
const PER_GENERATION = 2 ** 32;
/** A sandbox lives a day at most; nobody claims at an older epoch later than that. */
const KEPT_MS = 7 * 24 * 3_600_000;

/** The collection `sandboxEpochs`: the highest epoch each session's sandboxes have served. */
export class EpochRepository {
  constructor(private readonly rows: Collection<EpochRow>) {}

  async createIndexes(): Promise<void> {
    await this.rows.createIndex({ expiresAt: 1 }, { name: 'expiry_v1', expireAfterSeconds: 0 });
  }

  async find(tenantId: string, sessionId: string): Promise<Epoch | undefined> {
    const row = await this.rows.findOne({ _id: `${tenantId}/${sessionId}` }).catch(rethrow);
    return row ? epochOf(row.rank) : undefined;
  }

  /** @returns the highest one, this or a later one */
  async raise(tenantId: string, sessionId: string, { generation, epoch }: Epoch): Promise<Epoch> {
    const rank = generation * PER_GENERATION + epoch;
    const expiresAt = new Date(Date.now() + KEPT_MS);
    const change = { $max: { rank }, $set: { expiresAt }, $setOnInsert: { tenantId } };
    const options = { upsert: true, returnDocument: 'after' } as const;
    for (;;) {
      try {
        const row = await this.rows.findOneAndUpdate({ _id: `${tenantId}/${sessionId}` }, change, options);
        return epochOf(row?.rank ?? rank);
      } catch (error) {
        // Of two first ones at once the loser finds the winner's row.
        if (!isDuplicateKey(error)) throw translateStoreError(error);
      }
    }
  }
}

function epochOf(rank: number): Epoch {
  return { generation: Math.floor(rank / PER_GENERATION), epoch: rank % PER_GENERATION };
}

function rethrow(error: unknown): never {
  throw translateStoreError(error);
}
