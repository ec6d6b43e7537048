import { createPublicKey, generateKeyPairSync } from 'node:crypto';
import { FailedPreconditionError } from '@margay/errors';
import { keyId, Trust } from '@margay/platform';
import type { SecretData } from '../bootstrap/secrets';

const TRUST = 'trust.json';
const PROGRESS = 'rotation.json';
const KEY_FILE = /^(.+)\.key\.pem$/;
/** Sandboxes live by grants of this service's keys, longer than any token. */
const SANDBOX_SIGNER = 'tool-executor';

export interface RotationOptions {
  now: number;
  /** Until everybody has read what a step has written. */
  stepMs: number;
  /** Sandboxes that are alive, by the newest key whose grants they take; empty: not known of them. */
  sandboxesByKey: () => Promise<ReadonlyMap<string, number>>;
}

export interface RotationStep {
  /** What is to be written, in this order; an empty text stands for no key. */
  data: SecretData;
  done: string;
  isFinished: boolean;
}

/**
 * The next step by which every service gets a new key: made and trusted → signs, the old one is kept → the old one is
 * gone, but for what it has signed → nobody trusts it. Nothing that was signed stops being believed.
 * @throws FailedPreconditionError `rotation_early`, `sandboxes_alive`, `keys_missing`
 */
export async function nextStep(existing: SecretData, options: RotationOptions): Promise<RotationStep> {
  const services = servicesIn(existing);
  if (services.length === 0)
    throw new FailedPreconditionError('keys_missing', 'There are no keys of services here; make them by `margay.cjs bootstrap`.'); // prettier-ignore
  const isAny = (kind: string) => services.some((service) => textOf(existing, `${service}.${kind}.pem`) !== '');
  const [isMade, isReplaced] = [isAny('next'), isAny('old')];
  const trust = trustIn(existing);
  const isTrustedStill = services.some((service) => (trust[service] ?? []).length > 1);
  if (isMade || isReplaced || isTrustedStill) requireTime(existing, options);
  if (isMade) return step(useNext(existing, services), 'the new keys sign', options);
  if (isReplaced) {
    await requireUnused(existing, options);
    return step(dropOld(services), 'the old keys sign nothing any more', options);
  }
  if (isTrustedStill) return { ...step(distrustOld(existing, services), 'the old keys are not trusted any more', options), isFinished: true }; // prettier-ignore
  return step(makeNext(existing, services), 'new keys are made and trusted', options);
}

function step(data: SecretData, done: string, { now, stepMs }: RotationOptions): RotationStep {
  const progress = JSON.stringify({ notBefore: new Date(now + stepMs).toISOString() });
  return { data: { ...data, [PROGRESS]: progress }, done, isFinished: false };
}

function requireTime(existing: SecretData, { now }: RotationOptions): void {
  const { notBefore = '' } = JSON.parse(textOf(existing, PROGRESS) || '{}') as { notBefore?: string };
  if (!(Date.parse(notBefore) > now)) return;
  const message = `Not every process may have read the last step; run this again after ${notBefore}.`;
  throw new FailedPreconditionError('rotation_early', message);
}

async function requireUnused(existing: SecretData, { sandboxesByKey }: RotationOptions): Promise<void> {
  const old = textOf(existing, `${SANDBOX_SIGNER}.old.pem`);
  if (old === '') return;
  const byKey = await sandboxesByKey();
  const count = (byKey.get(kidOf(old)) ?? 0) + (byKey.get('') ?? 0);
  if (count === 0) return;
  const message = `${count} sandboxes know only the old key of ${SANDBOX_SIGNER}; they end within a day. Run this again then.`;
  throw new FailedPreconditionError('sandboxes_alive', message);
}

function makeNext(existing: SecretData, services: readonly string[]): SecretData {
  const made: Record<string, string> = {};
  const trust = trustIn(existing);
  for (const service of services) {
    const pem = generateKeyPairSync('ed25519').privateKey.export({ type: 'pkcs8', format: 'pem' }).toString();
    made[`${service}.next.pem`] = pem;
    trust[service] = [...(trust[service] ?? []), publicPemOf(pem)];
  }
  return { ...made, [TRUST]: jsonOf(trust) };
}

/** The old key first: whoever reads between two files must have it. */
function useNext(existing: SecretData, services: readonly string[]): SecretData {
  const moved = services.filter((service) => textOf(existing, `${service}.next.pem`) !== '');
  const olds = moved.map((service) => [`${service}.old.pem`, textOf(existing, `${service}.key.pem`)] as const);
  const keys = moved.map((service) => [`${service}.key.pem`, textOf(existing, `${service}.next.pem`)] as const);
  const gone = moved.map((service) => [`${service}.next.pem`, ''] as const);
  return Object.fromEntries([...olds, ...keys, ...gone]);
}

function dropOld(services: readonly string[]): SecretData {
  return Object.fromEntries(services.map((service) => [`${service}.old.pem`, '']));
}

function distrustOld(existing: SecretData, services: readonly string[]): SecretData {
  const trust = trustIn(existing);
  for (const service of services) trust[service] = [publicPemOf(textOf(existing, `${service}.key.pem`))];
  return { [TRUST]: jsonOf(trust) };
}

const servicesIn = (data: SecretData): string[] =>
  Object.keys(data)
    .flatMap((file) => KEY_FILE.exec(file)?.[1] ?? [])
    .sort();

const textOf = (data: SecretData, file: string): string => (data[file] ?? '').trim();
const trustIn = (data: SecretData): Trust => Trust.parse(JSON.parse(data[TRUST] ?? '{}'));
const jsonOf = (trust: Trust): string => `${JSON.stringify(trust, null, 2)}\n`;
const publicPemOf = (pem: string): string => createPublicKey(pem).export({ type: 'spki', format: 'pem' }).toString();
const kidOf = (pem: string): string => keyId(createPublicKey(pem));
