import type { secretsPb } from '@margay/contracts';
import type { GrpcHandlers, Logger, NatsBus, Sweep } from '@margay/platform';
import type { SessionLog } from '../commits/session-log';
import type { DataKeyRepository } from './data-key.repository';
import type { SecretHits } from './canary';
import { CommitMasking } from './commit-masking';
import { DataKeys } from './data-keys';
import { KekFile } from './kek-file';
import { resealSweep } from './reseal-sweep';
import type { SecretRepository } from './secret.repository';
import { SecretUse } from './secret-use';
import { secretsHandlers } from './secrets.grpc';
import { SecretsService } from './secrets.service';
import { TenantPrints } from './tenant-prints';
import { Vault } from './vault';

export interface OpenSecretsPorts {
  kekFile: string;
  rows: { secrets: SecretRepository; dataKeys: DataKeyRepository };
  log: SessionLog;
  bus: NatsBus;
  logger: Logger;
  hits: SecretHits;
}

export interface Secrets {
  handlers: GrpcHandlers<typeof secretsPb.SecretsDefinition>;
  sweep: Sweep;
  masking: CommitMasking;
  /** What is wrong with the file of key-encryption keys. */
  fault(): string | undefined;
  stop(): void;
}

/** The store of secrets with everything it needs. @throws FailedPreconditionError `kek_unreadable`, `kek_missing`; InvalidArgumentError `kek_faulty` */
export async function openSecrets({
  kekFile,
  rows: { secrets: rows, dataKeys },
  log,
  bus,
  logger,
  hits,
}: OpenSecretsPorts): Promise<Secrets> {
  const kek = await KekFile.open(kekFile, logger);
  const keys = new DataKeys(dataKeys, kek);
  await keys.requireKeks();
  const vault = new Vault(keys);
  kek.watch();
  const prints = new TenantPrints({ rows, vault, bus, logger });
  const onChange = (tenantId: string) => prints.forget(tenantId);
  const secrets = new SecretsService({ rows, vault, bus, logger, onChange });
  const use = new SecretUse({ rows, vault, log, logger, hits });
  return {
    handlers: secretsHandlers({ secrets, use, prints }),
    masking: new CommitMasking(prints, hits, logger),
    sweep: resealSweep({ keys, rows, vault, logger }),
    fault: () => kek.fault,
    stop: () => {
      kek.close();
      prints.close();
    },
  };
}
