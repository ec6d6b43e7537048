import { createHash, createPrivateKey, createPublicKey, generateKeyPairSync, type KeyObject } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { FailedPreconditionError } from '@margay/errors';
import { z } from 'zod';

const TOGETHER_MS = 5;

/** `trust.json`: public keys (SPKI PEM) by service; two of a service while its key is being rotated. */
export const Trust = z.record(z.string(), z.array(z.string()));
export type Trust = z.infer<typeof Trust>;

export interface TrustedKey {
  service: string;
  key: KeyObject;
}

/** Key id: the first 16 hex digits of the SHA-256 of the public key in SPKI DER. */
export function keyId(key: KeyObject): string {
  const publicKey = key.type === 'private' ? createPublicKey(key) : key;
  const der = publicKey.export({ type: 'spki', format: 'der' });
  return createHash('sha256').update(der).digest('hex').slice(0, 16);
}

/** Makes the missing keys of these services and lists all in `trust.json`; keys that exist stay. Not safe beside itself. */
export async function generateKeys(directory: string, services: readonly string[]): Promise<void> {
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const trustPath = join(directory, 'trust.json');
  const trust: Trust = existsSync(trustPath) ? await readTrust(directory) : {};
  for (const service of services) {
    const publicPem = await ensureKey(keyPath(directory, service));
    if (!trust[service]?.includes(publicPem)) trust[service] = [publicPem, ...(trust[service] ?? [])].slice(0, 2);
  }
  await writeFile(`${trustPath}.new`, `${JSON.stringify(trust, null, 2)}\n`);
  await rename(`${trustPath}.new`, trustPath);
}

async function ensureKey(path: string): Promise<string> {
  if (!existsSync(path)) {
    const { privateKey } = generateKeyPairSync('ed25519');
    await writeFile(path, privateKey.export({ type: 'pkcs8', format: 'pem' }), { mode: 0o600, flag: 'wx' });
  }
  const publicKey = createPublicKey(await readFile(path, 'utf8'));
  return publicKey.export({ type: 'spki', format: 'pem' }).toString();
}

export async function readTrust(directory: string): Promise<Trust> {
  return Trust.parse(JSON.parse(await readKeyFile(join(directory, 'trust.json'))));
}

export async function readPrivateKey(directory: string, service: string): Promise<KeyObject> {
  return createPrivateKey(await readKeyFile(keyPath(directory, service)));
}

/** What a process has of its service's keys. The two others exist while its key is replaced. */
export interface HeldKeys {
  trust: Trust;
  privateKey?: KeyObject | undefined;
  /** Signed before it, and still signs what only those who know it would take. */
  oldKey?: KeyObject | undefined;
  /** Will sign after it. */
  nextKey?: KeyObject | undefined;
}

/** The texts of a folder of keys as they stood together at some time: files change one after the other. */
export async function readKeyTexts(directory: string, service: string): Promise<string[]> {
  const files = ['trust.json', `${service}.key.pem`, `${service}.old.pem`, `${service}.next.pem`];
  const read = () => Promise.all(files.map((file) => readFile(join(directory, file), 'utf8').catch(absent)));
  for (let texts = await read(); ;) {
    await delay(TOGETHER_MS);
    const again = await read();
    if (again.every((text, n) => text === texts[n])) return texts;
    texts = again;
  }
}

export function heldKeysOf([trust = '', key = '', old = '', next = '']: readonly string[]): HeldKeys {
  const keyIn = (text: string) => (text.trim() === '' ? undefined : createPrivateKey(text));
  return { trust: Trust.parse(JSON.parse(trust)), privateKey: keyIn(key), oldKey: keyIn(old), nextKey: keyIn(next) };
}

function absent(error: unknown): string {
  if ((error as NodeJS.ErrnoException).code === 'ENOENT') return '';
  throw error;
}

export function trustedKeys(trust: Trust): Map<string, TrustedKey> {
  const keys = new Map<string, TrustedKey>();
  for (const [service, pems] of Object.entries(trust)) {
    for (const pem of pems) {
      const key = createPublicKey(pem);
      if (key.asymmetricKeyType !== 'ed25519') {
        throw new FailedPreconditionError('bad_trust', `trust.json holds a key of ${service} that is not Ed25519.`);
      }
      keys.set(keyId(key), { service, key });
    }
  }
  return keys;
}

const keyPath = (directory: string, service: string) => join(directory, `${service}.key.pem`);

async function readKeyFile(path: string): Promise<string> {
  try {
    return await readFile(path, 'utf8');
  } catch (cause) {
    const message = `The key file ${path} cannot be read; check MARGAY_KEYS_DIR or make the keys first (npm start does).`;
    throw new FailedPreconditionError('keys_missing', message, { cause });
  }
}
