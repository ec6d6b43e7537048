import { request as httpRequest, type IncomingMessage } from 'node:http';
import { connect, type Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { connect as connectTls } from 'node:tls';
import { isMargayError, PermissionDeniedError, UnavailableError } from '@margay/errors';
import { peerName, systemPrincipal, type KeyRing, type TlsIdentity } from '@margay/platform';
import type { OpenTunnel } from './http-send';

const PROXY = 'egress';
/** A replica of the proxy may be replaced at the very moment; nothing has been sent to the host by then. */
const TRIES = 4;
const PAUSE_MS = 250;

/** How calls of a tenant go out by the egress proxy: this service says for whom, the proxy judges the addresses. */
export function egressTunnels(proxy: string, keys: KeyRing): (tenantId: string) => OpenTunnel {
  return (tenantId) => async (url, signal) => {
    for (let tries = 1; ; tries += 1) {
      try {
        const token = await keys.signPrincipal(systemPrincipal(keys.service, tenantId), PROXY);
        return await openTunnel({ authority: authorityOf(url), token, signal }, () => dial(proxy, keys.tls));
      } catch (error) {
        const isPassing = isMargayError(error) && error.code === 'UNAVAILABLE' && !signal.aborted;
        if (!isPassing || tries >= TRIES) throw error;
        await delay(PAUSE_MS, undefined, { signal });
      }
    }
  };
}

/** With a port in any case: a tunnel knows no default. */
function authorityOf({ hostname, port, protocol }: URL): string {
  return `${hostname}:${port || (protocol === 'https:' ? '443' : '80')}`;
}

interface Wanted {
  authority: string;
  token: string;
  signal: AbortSignal;
}

/** @throws UnavailableError, PermissionDeniedError, with the proxy's own reason where it gave one */
function openTunnel({ authority, token, signal }: Wanted, createConnection: () => Socket): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const outgoing = httpRequest({
      createConnection,
      method: 'CONNECT',
      path: authority,
      headers: { Host: authority, 'Proxy-Authorization': `Bearer ${token}` },
      signal,
    });
    outgoing.once('connect', (response: IncomingMessage, socket: Socket, head: Buffer) => {
      if (response.statusCode !== 200) {
        socket.destroy();
        return reject(refusalOf(response));
      }
      if (head.length > 0) socket.unshift(head);
      resolve(socket);
    });
    outgoing.once('error', (cause) =>
      reject(new UnavailableError('egress_unavailable', 'The egress proxy cannot be reached.', { cause })),
    );
    outgoing.end();
  });
}

function refusalOf({ statusCode = 0, headers }: IncomingMessage): Error {
  const reason = String(headers['x-margay-egress'] ?? 'egress_refused');
  const message = `The egress proxy answered ${statusCode} (${reason}).`;
  return statusCode === 503 ? new UnavailableError(reason, message) : new PermissionDeniedError(reason, message);
}

function dial(proxy: string, tls: TlsIdentity | undefined): Socket {
  const separator = proxy.lastIndexOf(':');
  const [host, port] = [proxy.slice(0, separator), Number(proxy.slice(separator + 1))];
  return tls ? connectTls({ host, port, servername: peerName(PROXY), ...tls.pem }) : connect(port, host);
}
