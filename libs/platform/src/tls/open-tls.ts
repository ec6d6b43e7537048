import { Gauge } from 'prom-client';
import type { Logger } from '../logging/logger';
import type { ManagementServer } from '../management/management-server';
import { TlsIdentity } from './tls-identity';

export interface OpenTlsPorts {
  management: ManagementServer;
  logger: Logger;
}

/**
 * What connections between the services of this process and others are encrypted with, watched and shown: undefined where
 * no folder is named. @throws FailedPreconditionError `tls_unreadable`
 */
export async function openTls(
  folder: string | undefined,
  { management, logger }: OpenTlsPorts,
): Promise<TlsIdentity | undefined> {
  if (folder === undefined) return undefined;
  const tls = await TlsIdentity.open(folder, logger);
  const gauge: Gauge = new Gauge({
    name: 'margay_certificate_expiry_seconds',
    help: 'Time until the certificate expires that this process shows to other services',
    registers: [management.registry],
    collect: () => gauge.set((tls.expiresAtMs - Date.now()) / 1_000),
  });
  management.registerCheck('process.certificate', 'ready', () =>
    tls.fault === undefined ? undefined : { degraded: tls.fault },
  );
  tls.watch();
  return tls;
}
