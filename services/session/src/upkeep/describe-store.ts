import type { Db } from 'mongodb';

const LISTED_MAX = 500;

/** What there is, without what anybody said: counts, and the processes that know each other by this store. */
export async function describeStore(db: Db): Promise<object> {
  const names = (await db.listCollections({}, { nameOnly: true }).toArray()).map(({ name }) => name).sort();
  const count = async (name: string) => [name, await db.collection(name).estimatedDocumentCount()] as const;
  const list = (name: string) => db.collection(name).find({}).limit(LISTED_MAX).toArray();
  return {
    database: db.databaseName,
    documents: Object.fromEntries(await Promise.all(names.map(count))),
    runs: await runsByState(db),
    instances: await list('instances'),
    runners: await list('runners'),
    leases: await list('leases'),
    backups: await list('backups'),
    schema: await list('schema'),
  };
}

async function runsByState(db: Db): Promise<object> {
  const states = ['queued', 'running', 'waiting', 'done'];
  const counts = await Promise.all(states.map((state) => db.collection('runs').countDocuments({ state })));
  return Object.fromEntries(states.map((state, index) => [state, counts[index]]));
}
