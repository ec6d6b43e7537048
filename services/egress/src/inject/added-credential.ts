import type { IncomingMessage } from 'node:http';
import type { Transform } from 'node:stream';
import { constants, createBrotliDecompress, createGunzip, createInflate, createZstdDecompress } from 'node:zlib';
import type { EgressInjection } from '@margay/contracts';
import { spellingsOf } from '@margay/platform';
import type { Passage } from '../proxy/forward';
import { dropHeaders } from '../proxy/headers';
import type { Credential } from './credential';
import { holdsOne, reflected, ReflectionGuard } from './reflection';

/** By what a caller could show itself to the host as somebody else. */
const OWN_CREDENTIALS = [
  ...['authorization', 'cookie', 'private-token', 'job-token', 'deploy-token', 'x-api-key', 'api-key', 'apikey'],
  ...['x-auth-token', 'x-access-token'],
];
const OWN_PARAMETERS = ['access_token', 'private_token', 'job_token', 'api_key', 'apikey', 'auth_token'];
/** A secret that comes in parts or compressed could not be seen. */
const HIDING = ['accept-encoding', 'range', 'if-range'];
/** Of git, where an account has no name. */
const ANY_USER = 'git';
const END = { finishFlush: constants.Z_SYNC_FLUSH };

const DECODERS: Readonly<Record<string, () => Transform>> = {
  gzip: () => createGunzip(END),
  'x-gzip': () => createGunzip(END),
  deflate: () => createInflate(END),
  br: () => createBrotliDecompress({ finishFlush: constants.BROTLI_OPERATION_FLUSH }),
  zstd: () => createZstdDecompress({ finishFlush: constants.ZSTD_e_flush }),
};

/** A request with a credential of the tenant's instead of the caller's own, and its answer without it. */
export class AddedCredential implements Passage {
  private readonly spellings: readonly Buffer[];

  constructor(
    private readonly inject: EgressInjection,
    private readonly host: string,
    /** Absent: only the caller's own are taken away. */
    private readonly credential: Credential | undefined,
  ) {
    this.spellings = spellingsOf(credential ? secretsIn(inject, credential) : []);
  }

  resource(resource: string): string {
    const { as } = this.inject;
    const url = new URL(`https://${this.host}${resource}`);
    const name = as.startsWith('query:') ? as.slice('query:'.length) : undefined;
    const dropped = new Set([...OWN_PARAMETERS, ...(name === undefined ? [] : [name.toLowerCase()])]);
    const own = [...url.searchParams.keys()].filter((key) => dropped.has(key.toLowerCase()));
    for (const key of own) url.searchParams.delete(key);
    if (name !== undefined && this.credential) url.searchParams.set(name, this.credential.value);
    // Untouched where nothing changed: writing parameters anew may spell them differently.
    return own.length > 0 || name !== undefined ? `${url.pathname}${url.search}` : resource;
  }

  requestHeaders(headers: readonly string[]): string[] {
    const { as } = this.inject;
    const name = as.startsWith('header:') ? as.slice('header:'.length) : 'Authorization';
    const kept = dropHeaders(headers, [...OWN_CREDENTIALS, ...HIDING, name.toLowerCase()]);
    const value = this.credential && headerValue(as, this.credential);
    return [...kept, 'Accept-Encoding', 'identity', ...(value === undefined ? [] : [name, value])];
  }

  /** Signs the host hands out in return would be credentials, too. */
  responseHeaders(headers: readonly string[]): string[] {
    return dropHeaders(headers, ['set-cookie', 'content-encoding', 'content-length']);
  }

  /** @throws UnavailableError `egress_reflection` */
  checkHead({ rawHeaders, headers, statusMessage = '' }: IncomingMessage): void {
    const isPlain = /^(chunked)?$/i.test(headers['transfer-encoding'] ?? '');
    const head = Buffer.from([statusMessage, ...rawHeaders].join('\n'), 'latin1');
    if (!isPlain || holdsOne(this.spellings, head)) throw reflected(this.host);
  }

  /** @throws UnavailableError `egress_reflection` for an answer that cannot be read */
  bodyStages(answer: IncomingMessage): Transform[] {
    const encoding = answer.headers['content-encoding']?.trim().toLowerCase() ?? 'identity';
    const guard = new ReflectionGuard(this.spellings, this.host);
    if (encoding === 'identity' || encoding === '') return [guard];
    const decoder = DECODERS[encoding];
    if (!decoder) throw reflected(this.host);
    return [decoder(), guard];
  }
}

function headerValue(as: EgressInjection['as'], credential: Credential): string | undefined {
  if (as.startsWith('query:')) return undefined;
  if (as.startsWith('header:')) return credential.value;
  if (as === 'bearer') return `Bearer ${credential.value}`;
  return `Basic ${Buffer.from(pairOf(credential)).toString('base64')}`;
}

/** An opaque secret may be a pair already. */
function pairOf({ username, value }: Credential): string {
  if (username !== undefined) return `${username}:${value}`;
  return value.includes(':') ? value : `${ANY_USER}:${value}`;
}

function secretsIn({ as }: EgressInjection, credential: Credential): string[] {
  const { value } = credential;
  const isPair = as === 'basic' && credential.username === undefined && value.includes(':');
  return isPair ? [value, value.slice(value.indexOf(':') + 1)] : [value];
}
