import { parseConfig, type Logger } from '@margay/platform';
import { MongoConnection } from '@margay/platform/mongo';
import { z } from 'zod';
import { LIVE_STATES, type SandboxRow } from '../kubernetes-driver/sandbox-row';

const STORE_WAIT_MS = 15_000;

const StoreConfig = z.object({
  MARGAY_MONGODB_URL: z.string().describe('the document store'),
  MARGAY_MONGODB_DATABASE: z.string().default('margay_g0').describe('name of the database'),
});

/** Sandboxes that are alive, by the newest key whose grants they take; empty where that is not known. */
export async function sandboxesByKey(environment: NodeJS.ProcessEnv, logger: Logger): Promise<Map<string, number>> {
  const { MARGAY_MONGODB_URL: url, MARGAY_MONGODB_DATABASE: database } = parseConfig(StoreConfig, environment);
  const mongo = new MongoConnection({ url, database, logger, name: 'operator' });
  try {
    await mongo.ready(STORE_WAIT_MS);
    const rows = mongo.connection.getClient().db(database).collection<SandboxRow>('sandboxes');
    const counts = new Map<string, number>();
    for await (const { grantKid = '' } of rows.find(
      { state: { $in: [...LIVE_STATES] } },
      { projection: { grantKid: 1 } },
    ))
      counts.set(grantKid, (counts.get(grantKid) ?? 0) + 1);
    return counts;
  } finally {
    await mongo.close();
  }
}
