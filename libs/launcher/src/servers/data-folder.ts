import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { FailedPreconditionError } from '@margay/errors';
import { z } from 'zod';
import { majorVersion } from '../provision/versions';

const STORE_ENGINES = ['mongod', 'secantusd-rs', 'secantusd-py'] as const;
export type StoreEngine = (typeof STORE_ENGINES)[number];

const StoreRecord = z.object({ engine: z.enum(STORE_ENGINES), version: z.string() });
/** Which server wrote a data folder. */
export type StoreRecord = z.infer<typeof StoreRecord>;

const recordFile = (directory: string) => join(directory, 'engine.json');

/** The record of a data folder; undefined for a new one. */
export async function findStoreRecord(directory: string): Promise<StoreRecord | undefined> {
  let text: string;
  try {
    text = await readFile(recordFile(directory), 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
  const advice = `${recordFile(directory)} names no known engine; move the folder away to start with an empty store`;
  try {
    return StoreRecord.parse(JSON.parse(text));
  } catch (cause) {
    throw new FailedPreconditionError('store_record_unreadable', advice, { cause });
  }
}

/** Whether a server may open what another one wrote: the same engine, for a mongod of the same major version, else of the very same. */
export function canOpen(record: StoreRecord, server: StoreRecord): boolean {
  if (record.engine !== server.engine) return false;
  if (record.engine === 'mongod') return majorVersion(record.version) === majorVersion(server.version);
  return record.version === server.version;
}

/** Claims a data folder for a server; refuses one that another engine or version wrote. */
export async function claimDataFolder(directory: string, server: StoreRecord): Promise<void> {
  const record = await findStoreRecord(directory);
  if (record && !canOpen(record, server)) throw engineMismatch(directory, record, `${server.engine} ${server.version}`);
  await mkdir(directory, { recursive: true, mode: 0o700 });
  await writeFile(recordFile(directory), JSON.stringify(server));
}

export function engineMismatch(directory: string, record: StoreRecord, available: string): Error {
  return new FailedPreconditionError(
    'store_engine_mismatch',
    `the data in ${directory} was written by ${record.engine} ${record.version}, but here is ${available}. ` +
      `Provide ${record.engine} ${record.version} again, or move the folder away to start with an empty store.`,
  );
}
