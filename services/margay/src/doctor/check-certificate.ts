import { X509Certificate } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createLogger, TlsIdentity } from '@margay/platform';
import { fault, ok, reasonOf, warning, type Finding } from './finding';

const DAY_MS = 86_400_000;
const DUE_DAYS = 21;
const RENEW = 'renew it: helm upgrade where the chart makes certificates, otherwise see docs/installing.md';
const SILENT = createLogger({ service: 'doctor', level: 'off' });

/** What this process shows to other services: that they believe it, and for how long. */
export async function checkCertificate(folder: string | undefined, now = Date.now()): Promise<Finding[]> {
  // On one machine nothing is encrypted.
  if (folder === undefined) return [];
  try {
    const { expiresAtMs } = await TlsIdentity.open(folder, SILENT);
    const [own, authorities] = await Promise.all(
      ['tls.crt', 'ca.crt'].map((name) => readFile(join(folder, name), 'utf8')),
    );
    if (!isSigned(own ?? '', authorities ?? ''))
      return [fault('tls.certificate', `tls.crt in ${folder} is signed by none of ca.crt`, RENEW)];
    const days = Math.floor((expiresAtMs - now) / DAY_MS);
    if (days < 0) return [fault('tls.certificate', `the certificate in ${folder} has expired`, RENEW)];
    const detail = `the certificate in ${folder} is good for ${days} days`;
    return [days < DUE_DAYS ? warning('tls.certificate', detail, RENEW) : ok('tls.certificate', detail)];
  } catch (error) {
    return [fault('tls.certificate', reasonOf(error), RENEW)];
  }
}

/** The last of a chain is, where others stand between. */
function isSigned(own: string, authorities: string): boolean {
  const trusted = certificatesIn(authorities);
  return certificatesIn(own).some((certificate) =>
    trusted.some((authority) => certificate.checkIssued(authority) && certificate.verify(authority.publicKey)),
  );
}

function certificatesIn(text: string): X509Certificate[] {
  const pems = text.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g) ?? [];
  return pems.map((pem) => new X509Certificate(pem));
}
