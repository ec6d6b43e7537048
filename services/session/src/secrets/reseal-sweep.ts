import type { Logger, Sweep } from '@margay/platform';
import type { DataKeys } from './data-keys';
import type { SecretRow } from './secret.repository';
import type { SecretRows } from './secrets.service';
import type { Vault } from './vault';

const EVERY_MS = 60_000;
const BATCH = 50;

export interface ResealPorts {
  keys: Pick<DataKeys, 'retired'>;
  rows: Pick<SecretRows, 'sealedWith' | 'reseal'>;
  vault: Vault;
  logger: Logger;
}

/** Brings what retired data keys have sealed under the present one of their tenant. */
export function resealSweep({ keys, rows, vault, logger }: ResealPorts): Sweep {
  const reseal = async (row: SecretRow): Promise<boolean> => {
    try {
      return await rows.reseal(row, await vault.seal(row, await vault.open(row)));
    } catch (error) {
      // One that cannot be read must not keep the others from it.
      logger.error({ err: error, tenantId: row.tenantId, secret: row.name }, 'a secret could not be sealed anew');
      return false;
    }
  };
  return {
    name: 'secrets',
    everyMs: EVERY_MS,
    async sweep() {
      let resealed = 0;
      for await (const { tenantId, ids } of keys.retired())
        for (const row of await rows.sealedWith(tenantId, ids, BATCH)) if (await reseal(row)) resealed += 1;
      return resealed;
    },
  };
}
