import { CommitLoop, readConfirmedTip } from '@margay/log';
import type { Logger } from '@margay/platform';
import { FailedPreconditionError } from '@margay/errors';
import type { Db, MongoClient } from 'mongodb';
import { SystemClock } from '../commits/system-clock';
import type { MongoCommitStore } from '../commits/mongo-commit-store';
import { openCollections } from '../store/collections';
import { rebuiltIn, tellLost } from '../upkeep/projections';
import { pages, rebuildAll, type Rebuilt } from '../upkeep/rebuild';
import { verifySession, type Verification } from '../upkeep/verify';
import { readManifest, type Manifest } from './backup-format';
import { generationIn, generationsOf, type Generation } from './generations';
import { loadBackup, restoresIn } from './load-backup';
import { requireQuiet } from './quiet-instances';

export interface RestoreOptions {
  client: MongoClient;
  /** That of the installation as it is configured now; the backup goes into the next generation beside it. */
  database: string;
  folder: string;
  /** How long no instance may have given a sign of life; default 60 s. */
  quietMs?: number;
  logger: Logger;
}

export interface Restored {
  database: string;
  sessions: number;
  /** Runs that were under way and wait for somebody to look at them. */
  parked: number;
  unreadable: Rebuilt['unreadable'];
  /** Logs that are not in order. */
  faults: Verification[];
}

const QUIET_MS = 60_000;
const BATCH = 200;
const INSTANCE = 'restore';

/**
 * Restores a backup into a new generation of the store: a database of its own, so that whatever still holds on to the old
 * one can do no harm. It loads, parks the runs that were under way, rebuilds what follows from the logs, and verifies
 * every log. Broken off, it goes on when it is called again.
 * @throws FailedPreconditionError `instances_alive`, `backup_unfinished`, `backup_damaged`
 */
export async function restoreBackup(options: RestoreOptions): Promise<Restored> {
  const { client, folder, logger } = options;
  const manifest = await readManifest(folder);
  if (manifest.finishedAt === undefined)
    throw new FailedPreconditionError('backup_unfinished', `The backup in ${folder} was never finished; use another one.`); // prettier-ignore
  const generation = generationIn(options.database);
  const existing = await generationsOf(client, generation.prefix);
  const others = existing.map((number) => client.db(`${generation.prefix}${number}`));
  await requireQuiet([...others, client.db(options.database)], options.quietMs ?? QUIET_MS);
  const db = await targetOf(client, generation, existing, manifest);
  logger.info({ database: db.databaseName, parts: manifest.parts.length }, 'backup is being restored');
  // Before any document: whoever loads beside an index that is being built may lose some.
  const { store, blobs, rows } = await openCollections(db, { instance: INSTANCE });
  await loadBackup(db, folder, manifest, (part) => logger.info({ part, parts: manifest.parts.length }, 'part loaded'));
  const parked = await parkRuns(store);
  const projections = rebuiltIn(db, store, tellLost(logger));
  const rebuilt = await rebuildAll({ store, sessions: rows.sessions, projections });
  const faults: Verification[] = [];
  for await (const sessionId of pages((after) => store.sessionsAfter(after, BATCH))) {
    const verification = await verifySession({ store, blobs }, sessionId);
    if (verification.fault) faults.push(verification);
  }
  await restoresIn(db).updateOne({ _id: manifest.id }, { $set: { finishedAt: new Date() } }, { upsert: true });
  return { database: db.databaseName, sessions: rebuilt.sessions, parked, unreadable: rebuilt.unreadable, faults };
}

/** The next generation; or the last one, where this very restore was broken off there. */
async function targetOf(
  client: MongoClient,
  generation: Generation,
  existing: number[],
  { id }: Manifest,
): Promise<Db> {
  const newest = Math.max(generation.number, ...existing);
  const last = client.db(`${generation.prefix}${newest}`);
  const begun = newest > generation.number ? await restoresIn(last).findOne({ _id: id }) : null;
  if (begun && begun.finishedAt === undefined) return last;
  const db = client.db(`${generation.prefix}${newest + 1}`);
  await restoresIn(db).insertOne({ _id: id, tenantId: '_platform', parts: 0 });
  return db;
}

/** What a run did after the backup nobody knows here: it ends, and a person decides how to go on. */
async function parkRuns(store: MongoCommitStore): Promise<number> {
  const loop = new CommitLoop({ store, clock: new SystemClock() });
  let parked = 0;
  for await (const sessionId of pages((after) => store.sessionsAfter(after, BATCH))) {
    const run = await activeRun(store, sessionId);
    if (run === undefined) continue;
    const command = { kind: 'park', commitId: `park.${run}`, runId: run, reason: 'needs_review' } as const;
    if ((await loop.submit(sessionId, command)).ok) parked += 1;
  }
  return parked;
}

/** Of a log that can't be read nothing is parked: the session is refused as it is, and named as unreadable. */
async function activeRun(store: MongoCommitStore, sessionId: string): Promise<string | undefined> {
  try {
    return (await readConfirmedTip(store, sessionId)).head.run?.id;
  } catch (error) {
    if (error instanceof FailedPreconditionError) return undefined;
    throw error;
  }
}
