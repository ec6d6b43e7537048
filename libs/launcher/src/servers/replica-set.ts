import * as os from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { UnavailableError } from '@margay/errors';

const PRIMARY_LIMIT_MS = 30_000;
const NOT_YET_INITIALIZED = 94;

/** The admin database. */
export interface Admin {
  command(command: Record<string, unknown>): Promise<Record<string, unknown>>;
}

/** Makes a fresh mongod a replica set of one, or tells an existing one its new port; resolves once it is primary. */
export async function ensureReplicaSet(port: number): Promise<void> {
  // Loaded only here: it costs 0.2 s, and only a real mongod needs it.
  const { mongo } = await import('mongoose');
  const client = new mongo.MongoClient(`mongodb://127.0.0.1:${port}/?directConnection=true`, {
    serverSelectionTimeoutMS: 10_000,
    // The driver would import it dynamically, which fails under jest.
    runtimeAdapters: { os },
  });
  try {
    await client.connect();
    const admin: Admin = client.db('admin');
    await configureReplicaSet(admin, `127.0.0.1:${port}`);
    await waitForPrimary(admin, port);
  } finally {
    await client.close();
  }
}

/** Gives the set its one member under the address of this start. */
export async function configureReplicaSet(admin: Admin, host: string): Promise<void> {
  const config = await findConfig(admin);
  if (!config) {
    await admin.command({ replSetInitiate: { _id: 'margay', members: [{ _id: 0, host }] } });
    return;
  }
  if (config.members[0]?.host === host) return;
  const moved = { ...config, version: config.version + 1, members: [{ ...config.members[0], _id: 0, host }] };
  await admin.command({ replSetReconfig: moved, force: true });
}

interface ReplicaSetConfig {
  version: number;
  members: { host: string }[];
}

async function findConfig(admin: Admin): Promise<ReplicaSetConfig | undefined> {
  try {
    const { config } = await admin.command({ replSetGetConfig: 1 });
    return config as ReplicaSetConfig;
  } catch (error) {
    if ((error as { code?: number }).code === NOT_YET_INITIALIZED) return undefined;
    throw error;
  }
}

async function waitForPrimary(admin: Admin, port: number): Promise<void> {
  const deadline = Date.now() + PRIMARY_LIMIT_MS;
  while ((await admin.command({ hello: 1 })).isWritablePrimary !== true) {
    if (Date.now() > deadline)
      throw new UnavailableError('store_not_primary', `mongod on 127.0.0.1:${port} did not become primary within 30 s`);
    await sleep(50);
  }
}
