import { existsSync } from 'node:fs';
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { rootCertificates } from 'node:tls';

/** Where systems keep the authorities that they trust. */
const SYSTEM_BUNDLES = [
  '/etc/ssl/certs/ca-certificates.crt',
  '/etc/pki/tls/certs/ca-bundle.crt',
  '/etc/ssl/cert.pem',
  '/etc/ssl/ca-bundle.pem',
];
const OWN = 'ca.pem';
const JOINED = 'ca-bundle.pem';

/**
 * Lets the programs in the sandbox believe the authority of the egress proxy, besides those that the system trusts: writes
 * both into the folder and answers the variables by which programs find them. Nothing without an authority.
 */
export async function joinAuthority(authorityPem: string | undefined, folder: string): Promise<Record<string, string>> {
  if (authorityPem === undefined) return {};
  const [own, joined] = [path.join(folder, OWN), path.join(folder, JOINED)];
  await mkdir(folder, { recursive: true, mode: 0o700 });
  await replace(own, authorityPem);
  await replace(joined, `${(await systemBundle()).trimEnd()}\n${authorityPem}`);
  return {
    SSL_CERT_FILE: joined,
    GIT_SSL_CAINFO: joined,
    REQUESTS_CA_BUNDLE: joined,
    CURL_CA_BUNDLE: joined,
    // Node adds it to what it trusts.
    NODE_EXTRA_CA_CERTS: own,
  };
}

/** What Node trusts, where the system has nothing. */
async function systemBundle(): Promise<string> {
  const file = SYSTEM_BUNDLES.find((candidate) => existsSync(candidate));
  return file === undefined ? rootCertificates.join('\n') : readFile(file, 'utf8');
}

/** Anew, whatever a command has put there. */
async function replace(file: string, text: string): Promise<void> {
  await rm(file, { recursive: true, force: true });
  await writeFile(file, text, { mode: 0o644, flag: 'wx' });
}
