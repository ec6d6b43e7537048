import { createPublicKey, generateKeyPairSync, randomBytes } from 'node:crypto';
import { FailedPreconditionError } from '@margay/errors';
import { Trust } from '@margay/platform';
import { SERVICE_NAMES } from '../service-names';

/** Text by key, as in a Secret of Kubernetes. */
export type SecretData = Readonly<Record<string, string>>;

/** What is to be written into a secret, given what it has; once that is there: nothing. */
export type Completion = (existing: SecretData) => SecretData;

const TRUST = 'trust.json';
const KEK = 'kek.json';

/**
 * A key of each service and `trust.json` (service → public keys). A private key that exists stays; so does every public key
 * that is trusted, and those that are missing are added.
 * @throws FailedPreconditionError `bad_trust` where `trust.json` is no such document
 */
export function missingServiceKeys(existing: SecretData): SecretData {
  const added: Record<string, string> = {};
  const trust = readTrust(existing);
  for (const service of SERVICE_NAMES) {
    const file = `${service}.key.pem`;
    const pem = existing[file] ?? (added[file] = newPrivateKey());
    const publicPem = createPublicKey(pem).export({ type: 'spki', format: 'pem' }).toString();
    if (!trust[service]?.includes(publicPem)) trust[service] = [publicPem, ...(trust[service] ?? [])];
  }
  const text = `${JSON.stringify(trust, null, 2)}\n`;
  return text === existing[TRUST] ? added : { ...added, [TRUST]: text };
}

/** The first API key of this installation. */
export const missingFirstKey =
  (cell: string): Completion =>
  ({ key }): SecretData =>
    key ? {} : { key: `mk_${cell}_${randomBytes(16).toString('hex')}_${randomBytes(32).toString('base64url')}` };

/** The first key-encryption key, see docs/secrets.md. A file that exists stays whatever it holds: its keys may be in use. */
export const missingKek: Completion = (existing): SecretData => {
  if (existing[KEK]) return {};
  const keys = { k1: randomBytes(32).toString('base64') };
  return { [KEK]: `${JSON.stringify({ active: 'k1', keys }, null, 2)}\n` };
};

/** Digits and letters only: it becomes a part of an address. */
export const missingPassword: Completion = ({ password }): SecretData =>
  password ? {} : { password: randomBytes(24).toString('hex') };

function readTrust(existing: SecretData): Trust {
  const text = existing[TRUST];
  if (text === undefined) return {};
  try {
    return Trust.parse(JSON.parse(text));
  } catch (cause) {
    const message = `${TRUST} does not list public keys by service; restore it, or remove that key of the secret to have it made anew.`;
    throw new FailedPreconditionError('bad_trust', message, { cause });
  }
}

function newPrivateKey(): string {
  return generateKeyPairSync('ed25519').privateKey.export({ type: 'pkcs8', format: 'pem' }).toString();
}
