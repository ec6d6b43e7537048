import { isoMicros, type Ticket, type TicketPurpose } from '@margay/contracts';
import { isMargayError, NotFoundError } from '@margay/errors';
import type { KeyRing } from '@margay/platform';
import type { Caller } from './admission';
import type { Authenticator } from './authenticator';
import { unauthorized, type Credential } from './credential';

/** What a caller with a ticket is confined to. */
export interface TicketGrant {
  /** Undefined: whatever the key may read. */
  sessions: ReadonlySet<string> | undefined;
  user: boolean;
}

export interface TicketWish {
  purpose: TicketPurpose;
  sessionIds: readonly string[] | undefined;
  user: boolean;
}

const PREFIX = 'mt_';
/** With the five seconds of leeway between clocks a ticket is good for a minute. */
const TTL_SECONDS = 55;
/** Enough to tell sessions apart, and short enough for a hundred of them in a URL; access is checked besides. */
const SESSION_BYTES = 8;
const SERVED: ReadonlySet<TicketPurpose> = new Set(['stream', 'blob']);

/** Tickets stand for the key they were made with: what that key may no longer do, they may not. */
export class Tickets {
  constructor(
    private readonly keys: KeyRing,
    private readonly authenticator: Authenticator,
  ) {}

  /** Throws NOT_FOUND `feature_off` for a purpose that nothing serves here. */
  async issue({ principal, credential }: Caller, wish: TicketWish): Promise<{ ticket: string; expiresAt: string }> {
    const { purpose, sessionIds, user } = wish;
    if (!SERVED.has(purpose))
      throw new NotFoundError('feature_off', `this server has no ${purpose} that a ticket could open`);
    const { tenantId, principal: name, keyId } = principal;
    const ticket: Ticket = {
      ...{ v: 1, purpose, tenantId, principal: name, user },
      ...(keyId === undefined ? {} : { keyId, keySha256: credential.sha256.toString('base64url') }),
      ...(sessionIds ? { sessions: pack(sessionIds) } : {}),
    };
    const expiresAt = isoMicros((Math.floor(Date.now() / 1000) + TTL_SECONDS) * 1_000_000);
    return { ticket: PREFIX + (await this.keys.signTicket(ticket, TTL_SECONDS)), expiresAt };
  }

  /** The key behind a ticket; throws UNAUTHENTICATED for whatever is no valid ticket for this purpose. */
  async open(text: string, purpose: TicketPurpose): Promise<{ credential: Credential; grant: TicketGrant }> {
    const ticket = await this.verify(text);
    if (ticket.purpose !== purpose) throw unauthorized();
    const { sessions, user } = ticket;
    const grant = { sessions: sessions === undefined ? undefined : unpack(sessions), user };
    return { credential: this.credentialOf(ticket), grant };
  }

  private async verify(text: string): Promise<Ticket> {
    try {
      return await this.keys.verifyTicket(text.startsWith(PREFIX) ? text.slice(PREFIX.length) : '');
    } catch (error) {
      throw isMargayError(error) ? unauthorized() : error;
    }
  }

  private credentialOf({ keyId, keySha256, tenantId }: Ticket): Credential {
    if (keyId === undefined || keySha256 === undefined) return this.authenticator.operatorCredential(tenantId);
    return { keyId, sha256: Buffer.from(keySha256, 'base64url') };
  }
}

/** Whether the caller's credential reaches this session at all; a key does. */
export function coversSession({ ticket }: Caller, sessionId: string): boolean {
  return ticket?.sessions === undefined || ticket.sessions.has(prefixOf(sessionId));
}

const prefixOf = (sessionId: string) => sessionId.slice(0, 2 * SESSION_BYTES);

function pack(sessionIds: readonly string[]): string {
  return Buffer.from(sessionIds.map(prefixOf).join(''), 'hex').toString('base64url');
}

function unpack(packed: string): ReadonlySet<string> {
  const hex = Buffer.from(packed, 'base64url').toString('hex');
  return new Set(hex.match(new RegExp(`.{${2 * SESSION_BYTES}}`, 'g')) ?? []);
}
