import type { Collection } from 'mongodb';
import { translateStoreError } from '@margay/platform';

/** Whether network policies are enforced in a namespace, as somebody looked last. */
export interface NetworkCheck {
  /** The namespace. */
  _id: string;
  holds: boolean;
  /** What was found, in words. */
  detail: string;
  at: Date;
}

/** The tenant that needs no network policies to be kept apart from another: it was there first. */
interface FirstTenant {
  _id: 'first';
  tenantId: string;
}

/** The collections `networkChecks` and `firstTenant`. */
export class NetworkCheckRepository {
  constructor(
    private readonly checks: Collection<NetworkCheck>,
    private readonly first: Collection<FirstTenant>,
  ) {}

  async find(namespace: string): Promise<NetworkCheck | undefined> {
    return (await this.checks.findOne({ _id: namespace }).catch(rethrow)) ?? undefined;
  }

  async store({ _id, ...check }: NetworkCheck): Promise<void> {
    await this.checks.updateOne({ _id }, { $set: check }, { upsert: true }).catch(rethrow);
  }

  /** @param oldest whose files are the oldest here; it is they, unless it was settled before. @returns who is the first */
  async settleFirst(oldest: string): Promise<string> {
    const settle = { $setOnInsert: { tenantId: oldest } };
    const options = { upsert: true, returnDocument: 'after' as const };
    const row = await this.first.findOneAndUpdate({ _id: 'first' }, settle, options).catch(rethrow);
    return row?.tenantId ?? oldest;
  }
}

function rethrow(error: unknown): never {
  throw translateStoreError(error);
}
