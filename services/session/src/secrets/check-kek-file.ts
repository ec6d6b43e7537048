import type { Logger } from '@margay/platform';
import type { Db } from 'mongodb';
import { DataKeyRepository } from './data-key.repository';
import { DataKeys } from './data-keys';
import { KekFile } from './kek-file';

/**
 * Whether session could start with this file of key-encryption keys.
 * @returns the id of the active one
 * @throws FailedPreconditionError `kek_unreadable`, `kek_missing`; InvalidArgumentError `kek_faulty`
 */
export async function checkKekFile(file: string, db: Db, logger: Logger): Promise<string> {
  const kek = await KekFile.open(file, logger);
  await new DataKeys(new DataKeyRepository(db.collection('tenants')), kek).requireKeks();
  return kek.activeKid;
}
