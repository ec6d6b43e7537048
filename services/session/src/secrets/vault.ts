import { createHmac, hkdfSync } from 'node:crypto';
import type { DataKey, DataKeys } from './data-keys';
import { seal, unseal, type Place } from './seal';
import type { SecretRow } from './secret.repository';

type Slot = Pick<SecretRow, '_id' | 'tenantId' | 'rev'>;
export type SealedValue = Pick<SecretRow, 'dekId' | 'nonce' | 'ct' | 'fingerprint'>;

/** Seals values for their rows, and opens them again. */
export class Vault {
  constructor(private readonly keys: DataKeys) {}

  async seal(slot: Slot, value: string): Promise<SealedValue> {
    const dataKey = await this.keys.current(slot.tenantId);
    const sealed = seal(dataKey.key, Buffer.from(value), placeOf(slot));
    await this.keys.countUse(slot.tenantId, dataKey);
    return { dekId: dataKey.id, ...sealed, fingerprint: fingerprint(dataKey, value) };
  }

  /** @throws InternalError `unreadable_ciphertext` */
  async open(row: SecretRow): Promise<string> {
    return unseal(await this.keys.get(row.tenantId, row.dekId), row, placeOf(row)).toString();
  }
}

const placeOf = ({ _id, tenantId, rev }: Slot): Place => ({
  tenantId,
  collection: 'secrets',
  id: _id,
  field: 'value',
  rev,
});

function fingerprint({ key }: DataKey, value: string): string {
  const own = Buffer.from(hkdfSync('sha256', key, '', 'fingerprints of secrets', 32));
  return createHmac('sha256', own).update(value).digest('hex').slice(0, 8);
}
