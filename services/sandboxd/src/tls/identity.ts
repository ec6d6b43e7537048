import { readFile, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { createPrivateKey, X509Certificate } from 'node:crypto';
import { selfSigned, type Identity } from './self-signed';

const NAME = 'margay-sandbox';

/**
 * Who this sandbox is to those that have pinned its certificate. Kept beside the journal: a container that starts again is
 * the same sandbox.
 */
export async function sandboxIdentity(folder: string): Promise<Identity> {
  const file = path.join(folder, 'tls.json');
  const known = parse(await readFile(file, 'utf8').catch(() => '')); // missing, or damaged by a command
  if (known) return known;
  const identity = selfSigned(NAME);
  await rm(file, { recursive: true, force: true });
  await writeFile(file, JSON.stringify(identity), { mode: 0o600, flag: 'wx' });
  return identity;
}

function parse(text: string): Identity | undefined {
  try {
    const { keyPem, certificatePem } = JSON.parse(text) as Identity;
    const isPair = new X509Certificate(certificatePem).checkPrivateKey(createPrivateKey(keyPem));
    return isPair ? { keyPem, certificatePem } : undefined;
  } catch {
    return undefined; // not what was written here
  }
}
