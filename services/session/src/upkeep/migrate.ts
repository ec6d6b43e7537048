import { setTimeout as pause } from 'node:timers/promises';
import { FailedPreconditionError, UnavailableError } from '@margay/errors';
import { compareVersions, LeaseRepository, type Logger } from '@margay/platform';
import type { Db } from 'mongodb';
import { openCollections } from '../store/collections';

interface SchemaRow {
  _id: 'schema';
  tenantId: '_platform';
  /** The newest version that prepared this store. */
  version: string;
}

export interface MigrateOptions {
  db: Db;
  /** Of this build. */
  version: string;
  /** Random per process. */
  instance: string;
  logger: Logger;
  /** How long another one that is under way is waited for; default 60 s. */
  waitMs?: number;
}

const LEASE = 'migrate';
const LEASE_MS = 600_000;
const WAIT_MS = 60_000;
const RETRY_MS = 1_000;

/**
 * Prepares the store for this version before its first process starts: only adds, so that processes of the version before
 * go on beside it, also after a roll-back to that. One at a time.
 * @throws FailedPreconditionError `version_jump` where minor versions would be left out; UnavailableError `migrating`
 */
export async function migrate({ db, version, instance, logger, waitMs = WAIT_MS }: MigrateOptions): Promise<void> {
  const leases = new LeaseRepository(db.collection('leases'), instance);
  const until = performance.now() + waitMs;
  while (!(await leases.hold(LEASE, LEASE_MS))) {
    if (performance.now() > until)
      throw new UnavailableError(
        'migrating',
        'Another migration is under way; look at its pod, and run this one again.',
      );
    await pause(Math.min(RETRY_MS, waitMs));
  }
  try {
    const schema = db.collection<SchemaRow>('schema');
    const found = (await schema.findOne({ _id: 'schema' }))?.version;
    if (found !== undefined) requireNeighbour(found, version);
    await openCollections(db, { instance, version });
    const newest = [version, found ?? version].sort(compareVersions).at(-1) as string;
    await schema.updateOne({ _id: 'schema' }, { $set: { version: newest, tenantId: '_platform' } }, { upsert: true });
    logger.info({ version, before: found ?? null }, 'the store is prepared');
  } finally {
    await leases.release(LEASE);
  }
}

/** Each version works beside the one before it, and reads what that one wrote; not what older ones did. */
function requireNeighbour(found: string, version: string): void {
  const [[foundMajor, foundMinor], [major, minor]] = [numbersOf(found), numbersOf(version)];
  if (major === foundMajor && Math.abs(minor - foundMinor) <= 1) return;
  // The first minor of a major follows the last one of the major before it, whichever that was.
  if (major === foundMajor + 1 && minor === 0) return;
  if (foundMajor === major + 1 && foundMinor === 0) return;
  throw new FailedPreconditionError('version_jump', `The store was prepared by ${found}; go to ${version} one minor version at a time.`); // prettier-ignore
}

function numbersOf(version: string): [number, number] {
  const [major = 0, minor = 0] = version.split('.').map((part) => Number.parseInt(part, 10) || 0);
  return [major, minor];
}
