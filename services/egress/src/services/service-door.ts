import { createServer as createTcpServer, type Server, type Socket } from 'node:net';
import { createServer as createTlsServer } from 'node:tls';
import { UnavailableError } from '@margay/errors';
import type { TlsIdentity } from '@margay/platform';
import type { EgressProxy } from '../proxy/egress-proxy';

const MAX_CONNECTIONS = 10_000;
const MAX_LISTENERS = 20;
const HANDSHAKE_TIMEOUT_MS = 10_000;

/** Where services connect: over TLS with certificates on both sides where they have some. */
export class ServiceDoor {
  private readonly server: Server;
  private readonly stopWatching: () => void;

  constructor(proxy: EgressProxy, tls: TlsIdentity | undefined) {
    const take = (socket: Socket): void => {
      // One of TLS has some of its own, and a tunnel adds more than the usual ten.
      socket.setMaxListeners(MAX_LISTENERS);
      proxy.server.emit('connection', socket);
    };
    const options = { allowHalfOpen: true };
    if (tls) {
      const demanding = { requestCert: true, rejectUnauthorized: true, handshakeTimeout: HANDSHAKE_TIMEOUT_MS };
      const server = createTlsServer({ ...options, ...demanding, ...tls.pem }, take);
      this.stopWatching = tls.onChange(() => server.setSecureContext(tls.pem));
      this.server = server;
    } else {
      this.server = createTcpServer(options, take);
      this.stopWatching = () => undefined;
    }
    this.server.maxConnections = MAX_CONNECTIONS;
  }

  async listen(listen: string): Promise<void> {
    const separator = listen.lastIndexOf(':');
    const host = listen.slice(0, separator).replace(/^\[|\]$/g, '');
    await new Promise<void>((resolve, reject) => {
      this.server.once('error', (cause) =>
        reject(new UnavailableError('listen_failed', `Cannot listen on ${listen}; is the port taken?`, { cause })),
      );
      this.server.listen(Number(listen.slice(separator + 1)), host, resolve);
    });
  }

  /** Connections that were taken are the proxy's. */
  close(): void {
    this.stopWatching();
    if (this.server.listening) this.server.close();
  }
}
