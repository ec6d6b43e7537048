import { createHash } from 'node:crypto';
import { UnauthenticatedError } from '@margay/errors';
import type { FastifyRequest } from 'fastify';

/** A key or token as it came in; only its hash is kept. */
export interface Credential {
  /** SHA-256 of the whole text. */
  sha256: Buffer;
  /** Set for texts of the form `mk_<cell>_<id>_<secret>`. */
  keyId?: string;
  /** Tenant the platform operator wants to act in. */
  tenant?: string;
}

const KEY = /^mk_[a-z0-9]{1,8}_([0-9a-f]{32})_[A-Za-z0-9_-]{43}$/;
const MAX_CHARS = 512;
const TICKET_MAX_CHARS = 4_096;

/** The first credential present decides: `X-API-KEY`, `Authorization: Bearer`, `?api_key=`. */
export function credentialOf(request: FastifyRequest): Credential | undefined {
  const text = credentialText(request);
  if (text === undefined) return undefined;
  if (text.length > MAX_CHARS) throw unauthorized();
  const keyId = KEY.exec(text)?.[1];
  const tenant = request.headers['x-margay-tenant'];
  return {
    sha256: createHash('sha256').update(text).digest(),
    ...(keyId === undefined ? {} : { keyId }),
    ...(typeof tenant === 'string' && tenant !== '' ? { tenant } : {}),
  };
}

function credentialText(request: FastifyRequest): string | undefined {
  const header = request.headers['x-api-key'];
  if (typeof header === 'string' && header !== '') return header;
  const bearer = /^Bearer\s+(\S.*)$/i.exec(request.headers.authorization ?? '')?.[1];
  if (bearer !== undefined) return bearer.trim();
  const query = (request.query as Record<string, unknown>)['api_key'];
  if (Array.isArray(query)) throw unauthorized();
  return typeof query === 'string' && query !== '' ? query : undefined;
}

/** Looked at where no key is given. */
export function ticketOf(request: FastifyRequest): string | undefined {
  const text = (request.query as Record<string, unknown>)['ticket'];
  if (text === undefined || text === '') return undefined;
  if (typeof text !== 'string' || text.length > TICKET_MAX_CHARS) throw unauthorized();
  return text;
}

export function notProvided() {
  return new UnauthenticatedError('unauthenticated', 'API token is not provided.');
}

export function unauthorized() {
  return new UnauthenticatedError('unauthenticated', 'Unauthorized');
}
