import { createPrivateKey, createPublicKey, X509Certificate, type KeyObject } from 'node:crypto';
import { chmod, mkdir, readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { createSecureContext, type SecureContext } from 'node:tls';
import { FailedPreconditionError, type MargayError } from '@margay/errors';
import { certify, newKeyPair, type KeyPair } from '@margay/platform/certificates';
import { LRUCache } from 'lru-cache';

export const CA_CERTIFICATE = 'ca.pem';
export const CA_KEY = 'ca.key.pem';

const SUBJECT = 'Margay egress';
const DAY_MS = 86_400_000;
const AUTHORITY_DAYS = 3_650;
/** Clocks of sandboxes may be behind. */
const EARLY_MS = DAY_MS;
const LEAF_DAYS = 7;
/** Of a leaf in memory; it is made anew long before it ends. */
const KEPT_MS = DAY_MS;
const KEPT = 1_000;

export interface AuthorityFiles {
  certificatePem: string;
  keyPem: string;
}

/** A new authority, good for ten years, that sandboxes of this installation trust. */
export function newAuthority(nowMs: number): AuthorityFiles {
  const keys = newKeyPair();
  const certificatePem = certify({
    subject: SUBJECT,
    publicKey: keys.publicKey,
    issuer: { subject: SUBJECT, keys },
    notBeforeMs: nowMs - EARLY_MS,
    notAfterMs: nowMs + AUTHORITY_DAYS * DAY_MS,
    use: { kind: 'authority' },
  });
  return { certificatePem, keyPem: keys.privateKey.export({ type: 'pkcs8', format: 'pem' }).toString() };
}

/** Vouches for hosts towards sandboxes, so that the proxy can read what they say to them. */
export class Authority {
  private readonly contexts: LRUCache<string, SecureContext>;
  /** One for all hosts: it proves nothing but that this process speaks. */
  private readonly leafKeys = newKeyPair();

  constructor(
    private readonly keys: KeyPair,
    private readonly now: () => number,
  ) {
    this.contexts = new LRUCache({ max: KEPT, ttl: KEPT_MS, perf: { now }, ttlResolution: 0 });
  }

  /**
   * The authority in a folder (`ca.pem`, `ca.key.pem`); made there if it has none and can be written.
   * @throws FailedPreconditionError `egress_authority`
   */
  static async open(folder: string, now: () => number): Promise<Authority> {
    const { certificatePem, keyPem } = (await read(folder)) ?? (await make(folder, now()));
    const privateKey = keyOf(keyPem);
    if (!privateKey || !isAuthorityOf(certificatePem, privateKey, now()))
      throw unusable(`${CA_KEY} is not the key of ${CA_CERTIFICATE}, or that is no authority (any more)`, folder);
    return new Authority({ privateKey, publicKey: createPublicKey(privateKey) }, now);
  }

  contextFor(host: string): SecureContext {
    const known = this.contexts.get(host);
    if (known) return known;
    const context = createSecureContext({ key: pemOf(this.leafKeys.privateKey), cert: this.leafFor(host) });
    this.contexts.set(host, context);
    return context;
  }

  private leafFor(host: string): string {
    return certify({
      subject: SUBJECT,
      publicKey: this.leafKeys.publicKey,
      issuer: { subject: SUBJECT, keys: this.keys },
      notBeforeMs: this.now() - EARLY_MS,
      notAfterMs: this.now() + LEAF_DAYS * DAY_MS,
      use: { kind: 'server', names: [host] },
    });
  }
}

async function read(folder: string): Promise<AuthorityFiles | undefined> {
  try {
    const [certificatePem, keyPem] = await Promise.all(
      [CA_CERTIFICATE, CA_KEY].map((name) => readFile(path.join(folder, name), 'utf8')),
    );
    return { certificatePem: certificatePem as string, keyPem: keyPem as string };
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

/** The certificate comes last: whoever sees it can rely on the key. */
async function make(folder: string, nowMs: number): Promise<AuthorityFiles> {
  const files = newAuthority(nowMs);
  try {
    await mkdir(folder, { recursive: true, mode: 0o700 });
    await writeFile(path.join(folder, CA_KEY), files.keyPem, { mode: 0o600 });
    await chmod(path.join(folder, CA_KEY), 0o600);
    await writeFile(path.join(folder, CA_CERTIFICATE), files.certificatePem);
    return files;
  } catch (cause) {
    throw unusable(`${CA_CERTIFICATE} and ${CA_KEY} are missing and cannot be made`, folder, cause);
  }
}

function isAuthorityOf(certificatePem: string, privateKey: KeyObject, nowMs: number): boolean {
  try {
    const certificate = new X509Certificate(certificatePem);
    // Leaves name their issuer as this code does; another authority's would not be believed.
    const isOurs = certificate.subject === `CN=${SUBJECT}`;
    return (
      isOurs && certificate.ca && certificate.checkPrivateKey(privateKey) && Date.parse(certificate.validTo) > nowMs
    );
  } catch {
    return false; // not a certificate
  }
}

function keyOf(pem: string): KeyObject | undefined {
  try {
    return createPrivateKey(pem);
  } catch {
    return undefined; // not a key
  }
}

const pemOf = (key: KeyObject): string => key.export({ type: 'pkcs8', format: 'pem' }).toString();

function unusable(what: string, folder: string, cause?: unknown): MargayError {
  const message = `The authority in ${folder} cannot be used: ${what}. Make one with "margay.cjs bootstrap --egress-ca".`;
  return new FailedPreconditionError('egress_authority', message, { cause });
}
