// What every bench on real servers needs: a folder of its own, NATS, the document store, and a database for itself.
import { randomBytes } from 'node:crypto';
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openServers, TEST_SOURCES } from '../../../libs/launcher/dist/index.js';
import { createLogger } from '../../../libs/platform/dist/index.js';
import { MongoConnection } from '../../../libs/platform/dist/mongo/index.js';

/** A new folder that sandboxes, which run under other users, may enter; removed in the end. */
export async function benchFolder(closing) {
  const directory = await mkdtemp(join(tmpdir(), 'margay-bench-'));
  await chmod(directory, 0o711);
  closing.add(() => rm(directory, { recursive: true, force: true }));
  return directory;
}

/** `{ nats, store, database, connection }`: servers as for tests, and a connection with the options of the services. */
export async function openBenchServers({ directory, closing, progress }) {
  const servers = await openServers({ directory: join(directory, 'servers'), progress, allow: TEST_SOURCES });
  closing.add(() => servers.stop());
  const database = `bench_${randomBytes(6).toString('hex')}`;
  const logger = createLogger({ service: 'bench', level: 'warn' });
  const mongo = new MongoConnection({ url: servers.store.url, database, logger, name: 'bench' });
  await mongo.ready(10_000);
  closing.add(async () => {
    await mongo.connection.dropDatabase();
    await mongo.close();
  });
  return { nats: servers.nats, store: servers.store, database, connection: mongo.connection };
}
