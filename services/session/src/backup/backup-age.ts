import type { Db } from 'mongodb';
import type { Manifest } from './backup-format';

interface BackupRow {
  _id: string;
  tenantId: '_platform';
  finishedAt: Date;
}

const KEPT_MS = 90 * 24 * 3_600_000;

const backupsIn = (db: Db) => db.collection<BackupRow>('backups');

/** Remembers a backup that was read and found good. */
export async function noteBackup(db: Db, { id, finishedAt }: Manifest): Promise<void> {
  const row = { tenantId: '_platform' as const, finishedAt: new Date(finishedAt ?? Date.now()) };
  await backupsIn(db).updateOne({ _id: id }, { $set: row }, { upsert: true });
  await backupsIn(db).deleteMany({ finishedAt: { $lt: new Date(row.finishedAt.getTime() - KEPT_MS) } });
}

/** Milliseconds since the last good backup was finished; undefined where there is none. */
export async function backupAgeMs(db: Db, now: () => number = Date.now): Promise<number | undefined> {
  const last = await backupsIn(db).findOne({}, { sort: { finishedAt: -1 } });
  return last ? now() - last.finishedAt.getTime() : undefined;
}
