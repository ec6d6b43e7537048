import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import type { Principal } from '@margay/contracts';
import { UnauthenticatedError } from '@margay/errors';
import { CallerCheck, callersOf, type KeyRing, type PeerCall } from '@margay/platform';
import type { Caller } from '../proxy/gate';

const SERVICE = 'egress';
const BEARER = /^Bearer ([\w-]+\.[\w-]+\.[\w-]+)$/i;

/**
 * Services that go out, by the principal that each request brings, with the tenant for whom it is, and by the certificate
 * of the connection where services have some.
 */
export class ServiceIdentity {
  private readonly certificates = new CallerCheck(SERVICE);

  constructor(private readonly keys: KeyRing) {}

  /** @throws UnauthenticatedError `egress_identity` */
  async identify({ headers, socket }: Pick<IncomingMessage, 'headers' | 'socket'>): Promise<Caller> {
    const [, token = ''] = BEARER.exec(headers['proxy-authorization'] ?? '') ?? [];
    try {
      const principal = await this.keys.verifyPrincipal(token, SERVICE);
      this.requireService(principal, socket);
      const { tenantId, iss } = principal;
      return { tenantId, service: iss, sandboxId: `service/${iss}` };
    } catch (cause) {
      throw new UnauthenticatedError('egress_identity', 'The proxy does not know which service asks.', { cause });
    }
  }

  private requireService({ iss, principal }: Principal, socket: Socket): void {
    if (!callersOf(SERVICE).includes(iss) || principal !== `system:${iss}`)
      throw new UnauthenticatedError('egress_identity', `${principal} has no business here.`);
    if (!(socket instanceof TLSSocket)) return;
    const call = peerCallOf(socket);
    this.certificates.require(call);
    this.certificates.requireIssuer(call, { iss });
  }
}

const peerCallOf = (socket: TLSSocket): PeerCall => ({
  getPeer: () => `${socket.remoteAddress}:${socket.remotePort}`,
  getAuthContext: () => ({ sslPeerCertificate: socket.getPeerCertificate() }),
});
