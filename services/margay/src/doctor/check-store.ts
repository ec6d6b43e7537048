import * as os from 'node:os';
import { randomBytes } from 'node:crypto';
import { createLogger } from '@margay/platform';
import type { Db, MongoClient } from 'mongodb';
import { fault, ok, reasonOf, warning, type Finding } from './finding';

export interface StoreCheckOptions {
  url: string | undefined;
  database: string;
  /** Key-encryption keys, where this machine has them. */
  kekFile?: string | undefined;
  /** Also the promises of docs/protocol.md §9, in a database of their own; takes half a minute. */
  withContract: boolean;
  /** Documents of the range that the contract reads. */
  longRange?: number;
  progress: (line: string) => void;
}

const SELECTION_TIMEOUT_MS = 5_000;
const SKEW_WARNING_MS = 1_000;
const SKEW_FAULT_MS = 2_000;
const RANGE_P95_MS = 20;
const BACKUP_OLD_HOURS = 26;
const HOUR_MS = 3_600_000;
const UNAUTHORIZED = 13;
const WRITES = { w: 'majority', journal: true } as const;

/** The document store: reached, durable, on time, and keeping what the platform rests on. */
export async function checkStore(options: StoreCheckOptions): Promise<Finding[]> {
  if (options.url === undefined)
    return [fault('store.reached', 'no document store is named', 'set MARGAY_MONGODB_URL')];
  const { MongoClient } = await import('mongodb');
  const settings = { writeConcern: WRITES, readConcern: { level: 'majority' }, serverSelectionTimeoutMS: SELECTION_TIMEOUT_MS, runtimeAdapters: { os } } as const; // prettier-ignore
  const clients = [new MongoClient(options.url, settings), new MongoClient(options.url, settings)] as const;
  try {
    await Promise.all(clients.map((client) => client.connect()));
    return await checkReached(clients, options);
  } catch (error) {
    const fix = 'check MARGAY_MONGODB_URL, its credentials, and that a NetworkPolicy lets this machine reach it';
    return [fault('store.reached', `the document store does not answer: ${reasonOf(error)}`, fix)];
  } finally {
    await Promise.all(clients.map((client) => client.close()));
  }
}

type Clients = readonly [MongoClient, MongoClient];

async function checkReached(clients: Clients, options: StoreCheckOptions): Promise<Finding[]> {
  const [client] = clients;
  const db = client.db(options.database);
  const { version } = (await db.admin().command({ buildInfo: 1 })) as { version?: string };
  const findings = [ok('store.reached', `version ${version ?? 'unknown'}, database ${options.database}`)];
  findings.push(await checkClocks(db), await checkGeneration(client, options.database), await checkBackups(db));
  if (options.kekFile !== undefined) findings.push(await checkKek(db, options.kekFile));
  if (options.withContract) findings.push(...(await checkContract(clients, options)));
  return findings.filter(({ detail }) => detail !== '');
}

async function checkKek(db: Db, file: string): Promise<Finding> {
  const { checkKekFile } = await import('@margay/session');
  try {
    const active = await checkKekFile(file, db, createLogger({ service: 'doctor', level: 'off' }));
    return ok(
      'keys.secrets',
      `secrets of tenants are sealed under ${active}; none of the keys that they need is missing`,
    );
  } catch (error) {
    return fault('keys.secrets', reasonOf(error), 'see docs/secrets.md; session does not start like this');
  }
}

async function checkClocks(db: Db): Promise<Finding> {
  const { clockSkewMs } = await import('@margay/session');
  const skewMs = (await clockSkewMs(db)) ?? 0;
  const detail = `the clocks of this machine and of the store are ${Math.round(skewMs)} ms apart`;
  const fix = 'synchronise both clocks (NTP)';
  if (skewMs > SKEW_FAULT_MS) return fault('store.clock', detail, fix);
  return skewMs > SKEW_WARNING_MS ? warning('store.clock', detail, fix) : ok('store.clock', detail);
}

/** A restore makes a new generation beside the old one; forgetting to change over would go on with the old. */
export async function checkGeneration(client: MongoClient, database: string): Promise<Finding> {
  const match = /^(.*)_g(\d+)$/.exec(database);
  if (!match) return warning('store.generation', `the database ${database} names no generation`, 'name it margay_g0'); // prettier-ignore
  const databases = await databasesOf(client);
  if (!databases) return ok('store.generation', `generation ${match[2]}; others can't be listed by this user`);
  const prefix = `${match[1]}_g`;
  const generations = databases.map(({ name }) => (name.startsWith(prefix) ? Number(name.slice(prefix.length)) : 0));
  const newest = Math.max(0, ...generations.filter(Number.isInteger));
  if (newest <= Number(match[2])) return ok('store.generation', `generation ${match[2]}`);
  const fix = `set MARGAY_MONGODB_DATABASE to ${prefix}${newest}, or drop that database if its restore was given up`;
  return warning('store.generation', `generation ${newest} exists, but ${match[2]} is in use`, fix);
}

/** Not every user may list them. */
async function databasesOf(client: MongoClient): Promise<{ name: string }[] | undefined> {
  try {
    return (await client.db('admin').admin().listDatabases({ nameOnly: true })).databases;
  } catch (error) {
    if ((error as { code?: unknown }).code === UNAUTHORIZED) return undefined;
    throw error;
  }
}

async function checkBackups(db: Db): Promise<Finding> {
  const last = await db.collection<{ _id: string; finishedAt: Date }>('backups').findOne({}, { sort: { finishedAt: -1 } }); // prettier-ignore
  if (!last) return ok('store.backup', 'no backup of this database is known');
  const hours = Math.round((Date.now() - last.finishedAt.getTime()) / HOUR_MS);
  const detail = `the last backup is ${hours} h old`;
  if (hours <= BACKUP_OLD_HOURS) return ok('store.backup', detail);
  return warning('store.backup', detail, 'look at the backup job; run margay.cjs backup --to FOLDER');
}

async function checkContract([first, second]: Clients, options: StoreCheckOptions): Promise<Finding[]> {
  const { storeContract } = await import('@margay/session');
  const name = `margay_doctor_${randomBytes(4).toString('hex')}`;
  const databases = { db: first.db(name), other: second.db(name) };
  let p95Ms = 0;
  const { longRange } = options;
  const checks = storeContract(() => databases, { onRange: (ms) => (p95Ms = ms), ...(longRange && { longRange }) });
  const broken: Finding[] = [];
  try {
    for (const { title, check } of checks) {
      options.progress(`store: ${title}`);
      await check().catch((error: unknown) => broken.push(brokenPromise(title, error)));
    }
  } finally {
    await databases.db.dropDatabase();
  }
  return [...(broken.length > 0 ? broken : [ok('store.contract', `all ${checks.length} promises kept`)]), rangeFinding(p95Ms)]; // prettier-ignore
}

function brokenPromise(title: string, error: unknown): Finding {
  if ((error as { code?: unknown }).code === UNAUTHORIZED)
    return warning('store.contract', `not allowed to ask the store whether it ${title}`, 'give the user of the doctor readWrite on margay_doctor_*'); // prettier-ignore
  const detail = `the store does not keep what it must: it ${title} (${reasonOf(error)})`;
  return fault('store.contract', detail, 'use MongoDB 7 or 8 as a replica set; no other store keeps sessions safe');
}

function rangeFinding(p95Ms: number): Finding {
  const detail = `a page of 100 of many documents takes ${p95Ms.toFixed(1)} ms (p95)`;
  if (p95Ms <= RANGE_P95_MS) return ok('store.range', detail);
  return warning('store.range', detail, `at most ${RANGE_P95_MS} ms are meant: faster disks, or more memory for the store's cache`); // prettier-ignore
}
