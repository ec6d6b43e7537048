import { createHash, hkdfSync, type KeyObject } from 'node:crypto';
import { Principal, RunGrant, SandboxGrant, Ticket } from '@margay/contracts';
import { InternalError, PermissionDeniedError, UnauthenticatedError } from '@margay/errors';
import { CompactSign, compactVerify, decodeProtectedHeader } from 'jose';
import { LRUCache } from 'lru-cache';
import { z } from 'zod';
import type { TlsIdentity } from '../tls/tls-identity';
import { mayAssert, mayIssueGrant, type TokenKind } from './entitlements';
import {
  heldKeysOf,
  keyId,
  readKeyTexts,
  readPrivateKey,
  readTrust,
  trustedKeys,
  type HeldKeys,
  type TrustedKey,
} from './key-files';

export const PRINCIPAL_TTL_SECONDS = 60;
export const GRANT_TTL_SECONDS = 60;
/** A signed principal is used again for this long, so a receiver sees it with at least half its life left. */
const REUSE_MS = 30_000;
/** Clock skew allowed between services; sandboxes may lag more. */
const LEEWAY_SECONDS: Record<TokenKind, number> = { principal: 5, 'run-grant': 5, 'sandbox-grant': 30, ticket: 5 };
/** Services (middle part of the proto package) that accept a run grant. */
const RUN_GRANT_AUDIENCES = ['session', 'tools', 'mcp'];
const CACHED_TOKENS = 20_000;
/** Files of keys are looked at so often, when there is something to sign or to verify. */
const LOOK_MS = 2_000;
/** … and so often where a key is not known. */
const UNKNOWN_LOOK_MS = 500;

const Envelope = z.object({
  iss: z.string(),
  aud: z.union([z.string(), z.array(z.string())]),
  iat: z.number(),
  exp: z.number(),
});
type Verified = z.infer<typeof Envelope> & { kind: TokenKind; claims: unknown };

export interface KeyRingOptions extends HeldKeys {
  service: string;
  /** Absent in processes that only verify, such as sandboxd. */
  privateKey?: KeyObject | undefined;
  /** What the files of keys say now; keys can be replaced while the process runs. */
  readTexts?: () => Promise<string[]>;
  /** What its connections are encrypted with; absent: they are not. */
  tls?: TlsIdentity;
  /** Milliseconds since the epoch. */
  now?: () => number;
}

/**
 * Signs what this service may assert and verifies what others did: compact JWS, EdDSA, `iss`, `aud`, `exp` always checked.
 * A token once verified costs microseconds until it expires. Keys are replaced while the process runs, see docs/operating.md.
 */
export class KeyRing {
  readonly service: string;
  readonly tls?: TlsIdentity;
  /** Why the files of keys cannot be used as they are now; what they said before counts. */
  fault: string | undefined;
  private held: HeldKeys;
  private keys: Map<string, TrustedKey>;
  /** Of the files as they were taken. */
  private digest = '';
  private lookedAtMs = 0;
  private looking?: Promise<void> | undefined;
  private readonly readTexts?: () => Promise<string[]>;
  private readonly now: () => number;
  private readonly verified = new LRUCache<string, Verified>({ max: CACHED_TOKENS });
  private readonly signed = new LRUCache<string, { token: Promise<string>; reuseUntil: number }>({
    max: CACHED_TOKENS,
  });

  constructor(options: KeyRingOptions) {
    this.service = options.service;
    this.held = options;
    this.keys = trustedKeys(options.trust);
    this.now = options.now ?? Date.now;
    if (options.tls) this.tls = options.tls;
    if (options.readTexts) this.readTexts = options.readTexts;
    this.lookedAtMs = performance.now();
  }

  /** Names the key that it signs with; undefined where it only verifies. */
  get signingKeyId(): string | undefined {
    return this.held.privateKey && keyId(this.held.privateKey);
  }

  /** Public keys of a service, PEM, one after the other. */
  publicKeysOf(service: string): string {
    return (this.held.trust[service] ?? []).join('\n');
  }

  /**
   * Secrets that only replicas of this service can make, others for each purpose. The first one is to be used; the others
   * are those of replicas, and of times, with the former and the next key.
   */
  deriveSecrets(purpose: string): [Buffer, ...Buffer[]] {
    const { privateKey, oldKey, nextKey } = this.held;
    if (!privateKey) throw new InternalError('no_private_key', `${this.service} has no private key to derive from.`);
    const derive = (key: KeyObject) =>
      Buffer.from(hkdfSync('sha256', key.export({ type: 'pkcs8', format: 'der' }), '', purpose, 32));
    return [derive(privateKey), ...[oldKey, nextKey].filter((key) => key !== undefined).map(derive)];
  }

  /** Takes what the files of keys say now, if they have not been looked at just before. */
  refresh(everyMs = LOOK_MS): Promise<void> {
    if (!this.readTexts || performance.now() - this.lookedAtMs < everyMs) return Promise.resolve();
    this.looking ??= this.look(this.readTexts).finally(() => (this.looking = undefined));
    return this.looking;
  }

  private async look(read: () => Promise<string[]>): Promise<void> {
    try {
      const texts = await read();
      const digest = createHash('sha256').update(JSON.stringify(texts)).digest('hex');
      if (digest !== this.digest) this.take(heldKeysOf(texts));
      this.digest = digest;
      this.fault = undefined;
    } catch (error) {
      this.fault = `the files of keys of ${this.service} cannot be used: ${error instanceof Error ? error.name : 'unknown'}`;
    } finally {
      this.lookedAtMs = performance.now();
    }
  }

  private take(held: HeldKeys): void {
    const keys = trustedKeys(held.trust);
    // Whoever has one must not lose it.
    if (this.held.privateKey && !held.privateKey) throw new InternalError('no_private_key', 'The private key is gone.');
    this.held = this.held.privateKey ? held : { trust: held.trust };
    this.keys = keys;
    this.signed.clear();
    this.verified.clear();
  }

  /** Reads `trust.json` and `<service>.key.pem`; `verifyOnly` for a process that has no key of its own. */
  static async load(
    directory: string,
    service: string,
    { verifyOnly = false, tls }: { verifyOnly?: boolean; tls?: TlsIdentity | undefined } = {},
  ): Promise<KeyRing> {
    const trust = await readTrust(directory);
    const ring = new KeyRing({
      service,
      trust,
      ...(tls && { tls }),
      ...(!verifyOnly && { privateKey: await readPrivateKey(directory, service) }),
      readTexts: () => readKeyTexts(directory, service),
    });
    ring.lookedAtMs = -Infinity;
    await ring.refresh();
    return ring;
  }

  /** The token of a principal for one audience; the request id is left out, since it travels beside the token. */
  signPrincipal(principal: Principal, audience: string): Promise<string> {
    this.assertMayAssert(principal);
    const { requestId: _beside, ...claims } = principal;
    const { tenantId, principal: name, role, scopes, keyId: key } = principal;
    const cacheKey = JSON.stringify([audience, tenantId, name, role, scopes, key]);
    const cached = this.signed.get(cacheKey);
    if (cached && cached.reuseUntil > this.now()) return cached.token;
    const token = this.sign('principal', claims, PRINCIPAL_TTL_SECONDS, audience);
    this.signed.set(cacheKey, { token, reuseUntil: this.now() + REUSE_MS });
    return token;
  }

  /** Throws PERMISSION_DENIED `issuer_not_entitled` if this service may not speak for that principal. */
  assertMayAssert(principal: Principal): void {
    if (!mayAssert(this.service, principal))
      throw notEntitled(this.service, `assert ${principal.principal} as ${principal.role}`);
  }

  async signRunGrant(grant: RunGrant, ttlSeconds = GRANT_TTL_SECONDS): Promise<string> {
    return this.sign('run-grant', grant, ttlSeconds, RUN_GRANT_AUDIENCES);
  }

  /** The audience is the sandbox itself, so the grant opens no other one. */
  async signSandboxGrant(grant: SandboxGrant, ttlSeconds = GRANT_TTL_SECONDS): Promise<string> {
    return this.sign('sandbox-grant', grant, ttlSeconds, grant.sandboxId);
  }

  /** Only this service's own replicas accept it. */
  async signTicket(ticket: Ticket, ttlSeconds: number): Promise<string> {
    return this.sign('ticket', ticket, ttlSeconds, this.service);
  }

  async verifyPrincipal(token: string, audience: string): Promise<Principal> {
    const { iss, claims } = await this.verify('principal', token, audience);
    const principal = claims as Principal;
    if (!mayAssert(iss, principal)) throw notEntitled(iss, `assert ${principal.principal} as ${principal.role}`);
    return principal;
  }

  async verifyRunGrant(token: string, audience: string): Promise<RunGrant> {
    return (await this.verify('run-grant', token, audience)).claims as RunGrant;
  }

  async verifySandboxGrant(token: string, sandboxId: string): Promise<SandboxGrant> {
    return (await this.verify('sandbox-grant', token, sandboxId)).claims as SandboxGrant;
  }

  async verifyTicket(token: string): Promise<Ticket> {
    return (await this.verify('ticket', token, this.service)).claims as Ticket;
  }

  /** The building block of the methods above; `payload` is checked by the schema of its kind when it is verified. */
  async sign(kind: TokenKind, payload: object, ttlSeconds: number, audience: string | string[]): Promise<string> {
    await this.refresh();
    const { privateKey, oldKey } = this.held;
    // Sandboxes know the keys of the time when they were started.
    const key = kind === 'sandbox-grant' ? (oldKey ?? privateKey) : privateKey;
    if (!key) {
      throw new InternalError('no_private_key', `${this.service} holds no private key, so it cannot sign a ${kind}.`);
    }
    if (kind !== 'principal' && !mayIssueGrant(this.service, kind)) throw notEntitled(this.service, `sign a ${kind}`);
    const iat = Math.floor(this.now() / 1000);
    const claims = { ...payload, iss: this.service, aud: audience, iat, exp: iat + ttlSeconds };
    return new CompactSign(Buffer.from(JSON.stringify(claims)))
      .setProtectedHeader({ alg: 'EdDSA', kid: keyId(key), typ: typeOf(kind) })
      .sign(key);
  }

  private async verify(kind: TokenKind, token: string, audience: string): Promise<Verified> {
    const known = this.verified.get(token);
    const verified = known?.kind === kind ? known : await this.verifySignature(kind, token);
    const nowSeconds = this.now() / 1000;
    const leeway = LEEWAY_SECONDS[kind];
    if (verified.exp + leeway <= nowSeconds || verified.iat - leeway > nowSeconds) throw refused(kind, 'expired');
    const audiences = Array.isArray(verified.aud) ? verified.aud : [verified.aud];
    if (!audiences.includes(audience)) throw wrongAudience(kind, audience);
    if (!known) this.verified.set(token, verified);
    return verified;
  }

  private async verifySignature(kind: TokenKind, token: string): Promise<Verified> {
    const kid = kidOf(token) ?? '';
    await this.refresh(this.keys.has(kid) ? LOOK_MS : UNKNOWN_LOOK_MS);
    const trusted = this.keys.get(kid);
    if (!trusted) throw refused(kind, 'invalid');
    const opened = await compactVerify(token, trusted.key, { algorithms: ['EdDSA'] }).catch((cause: unknown) => {
      throw refused(kind, 'invalid', cause);
    });
    if (opened.protectedHeader.typ !== typeOf(kind)) throw refused(kind, 'invalid');
    const claims = parseClaims(kind, opened.payload);
    if (claims.iss !== trusted.service) throw refused(kind, 'invalid');
    if (kind !== 'principal' && !mayIssueGrant(claims.iss, kind)) throw notEntitled(claims.iss, `sign a ${kind}`);
    return claims;
  }
}

const SCHEMAS = { principal: Principal, 'run-grant': RunGrant, 'sandbox-grant': SandboxGrant, ticket: Ticket };
const typeOf = (kind: TokenKind) => `margay-${kind}`;

function kidOf(token: string): string | undefined {
  try {
    return decodeProtectedHeader(token).kid;
  } catch {
    return undefined; // no JWS at all: the caller refuses it like an unknown key
  }
}

function parseClaims(kind: TokenKind, payload: Uint8Array): Verified {
  try {
    const open: unknown = JSON.parse(Buffer.from(payload).toString('utf8'));
    return { ...Envelope.parse(open), kind, claims: Object.freeze(SCHEMAS[kind].parse(open)) };
  } catch (cause) {
    throw refused(kind, 'invalid', cause);
  }
}

const wordOf = (kind: TokenKind) => (kind === 'principal' || kind === 'ticket' ? kind : 'grant');

function refused(kind: TokenKind, why: 'invalid' | 'expired', cause?: unknown) {
  const message =
    why === 'expired' ? `The ${kind} has expired; ask for a new one.` : `The ${kind} is not validly signed.`;
  return new UnauthenticatedError(`${wordOf(kind)}_${why}`, message, { cause });
}

function wrongAudience(kind: TokenKind, audience: string) {
  return new PermissionDeniedError(`${wordOf(kind)}_audience`, `The ${kind} was not made for ${audience}.`);
}

function notEntitled(issuer: string, what: string) {
  return new PermissionDeniedError('issuer_not_entitled', `The service ${issuer} may not ${what}.`);
}
