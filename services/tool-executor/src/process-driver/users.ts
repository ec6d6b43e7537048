import { createHash } from 'node:crypto';
import { ResourceExhaustedError } from '@margay/errors';
import type { SandboxRecord } from './sandbox-records';

const FIRST_UID = 20_000;
const LAST_UID = 29_999;

export function isOwnUid(uid: number): boolean {
  return uid >= FIRST_UID && uid <= LAST_UID;
}

export interface UidChoice {
  uid: number;
  /** The stopped sandbox that loses this number. */
  takenFrom?: SandboxRecord;
}

/**
 * A user number that no other sandbox of this home and no running process has; when all are taken, that of the stopped
 * sandbox unused for longest. Homes start counting at different numbers, so several on one machine hardly meet.
 */
export function chooseUid(records: readonly SandboxRecord[], active: ReadonlySet<number>, home: string): UidChoice {
  const taken = new Set(records.map((record) => record.uid));
  const count = LAST_UID - FIRST_UID + 1;
  const start = createHash('sha256').update(home).digest().readUInt32BE() % count;
  for (let step = 0; step < count; step += 1) {
    const uid = FIRST_UID + ((start + step) % count);
    if (!taken.has(uid) && !active.has(uid)) return { uid };
  }
  const [oldest] = records
    .filter((record) => isOwnUid(record.uid) && record.processes.length === 0 && !active.has(record.uid))
    .sort((a, b) => a.lastUsedAt - b.lastUsedAt);
  if (oldest) return { uid: oldest.uid, takenFrom: oldest };
  throw new ResourceExhaustedError('sandbox_users', 'All 10,000 sandbox users of this machine are in use.');
}
