import { createPublicKey, generateKeyPairSync, randomBytes } from 'node:crypto';
import { chmod, mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { SERVICES } from './services';

/**
 * Ed25519 keys of all services in the folder that `MARGAY_KEYS_DIR` names: `<service>.key.pem` (PKCS #8) and `trust.json`
 * (service → SPKI PEMs). Keys that exist stay. It is what `generateKeys` of @margay/platform writes; here without Nest.
 */
export async function ensureServiceKeys(directory: string): Promise<void> {
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const trust: Record<string, string[]> = {};
  for (const service of SERVICES) {
    const key = await ensureSecret(join(directory, `${service}.key.pem`), newPrivateKey);
    // While keys are being replaced there are others.
    const others = await Promise.all(['old', 'next'].map((kind) => textOf(join(directory, `${service}.${kind}.pem`))));
    trust[service] = [key, ...others].filter((pem) => pem !== '').map(publicPem);
  }
  const file = join(directory, 'trust.json');
  await writeFile(`${file}.new`, `${JSON.stringify(trust, null, 2)}\n`);
  await rename(`${file}.new`, file);
}

async function textOf(file: string): Promise<string> {
  try {
    return (await readFile(file, 'utf8')).trim();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    return '';
  }
}

/** The API key of this machine's first user, made once; only its hash enters the store. */
export function ensureBootstrapKey(file: string): Promise<string> {
  return ensureSecret(
    file,
    () => `mk_local_${randomBytes(16).toString('hex')}_${randomBytes(32).toString('base64url')}`,
  );
}

/** The key-encryption keys that session wraps the data keys of tenants with: `{active, keys}`, made once with one key. */
export async function ensureKekFile(file: string): Promise<void> {
  await ensureSecret(file, () => {
    const keys = { k1: randomBytes(32).toString('base64') };
    return `${JSON.stringify({ active: 'k1', keys }, null, 2)}\n`;
  });
}

/** The secret in a file of mode 0600, made where there is none. */
async function ensureSecret(file: string, make: () => string): Promise<string> {
  try {
    const secret = (await readFile(file, 'utf8')).trim();
    await chmod(file, 0o600);
    return secret;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
  const secret = make();
  await writeFile(`${file}.new`, secret, { mode: 0o600 });
  await rename(`${file}.new`, file);
  return secret.trim();
}

function newPrivateKey(): string {
  return generateKeyPairSync('ed25519').privateKey.export({ type: 'pkcs8', format: 'pem' }).toString();
}

function publicPem(privatePem: string): string {
  return createPublicKey(privatePem).export({ type: 'spki', format: 'pem' }).toString();
}
