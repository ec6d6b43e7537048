import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { TLSSocket, type SecureContext } from 'node:tls';
import type { EgressCaller } from '@margay/contracts';
import { PermissionDeniedError } from '@margay/errors';
import type { Injector } from '../inject/injector';
import { answer } from '../proxy/answer';
import type { Exchange } from '../proxy/exchange';
import { forward } from '../proxy/forward';
import type { Gate } from '../proxy/gate';
import { requestTarget } from '../proxy/target';
import type { Authority } from './authority';
import { encrypt } from './host-connection';

/** A tunnel whose requests are read, and whose it is. */
export interface Tunnel {
  caller: EgressCaller;
  host: string;
  port: number;
}

export interface InterceptorOptions {
  gate: Gate;
  authority: Authority;
  injector: Injector;
  /** Whom hosts may be vouched for by. */
  trust: SecureContext;
}

const HANDSHAKE_MS = 10_000;
/** Of a tunnel in which nothing is asked. */
const SILENT_TIMEOUT_MS = 60_000;

/**
 * Ends the encryption of tunnels here, with a certificate that the sandbox trusts. Each request in them is judged and sent
 * to the host over a connection of its own, in HTTP/1.1.
 */
export class Interceptor {
  private readonly tunnels = new WeakMap<Socket, Tunnel>();
  private readonly server: Server;

  constructor(private readonly options: InterceptorOptions) {
    this.server = createServer({ requestTimeout: 0, insecureHTTPParser: false }, (request, response) => {
      void this.handle(request, response);
    });
    this.server.timeout = SILENT_TIMEOUT_MS;
    // A tunnel costs its client two handshakes: it may keep it a while.
    this.server.keepAliveTimeout = SILENT_TIMEOUT_MS;
  }

  /**
   * `hello` are the bytes that the client has sent.
   * @throws ResourceExhaustedError `egress_limit`
   */
  take(client: Socket, hello: Buffer, tunnel: Tunnel): void {
    const secureContext = this.options.authority.contextFor(tunnel.host);
    const lease = this.options.gate.hold(tunnel.caller);
    client.unshift(hello);
    const secure = new TLSSocket(client, {
      isServer: true,
      secureContext,
      ALPNProtocols: ['http/1.1'],
    });
    const destroy = (): void => {
      secure.destroy();
      client.destroy();
    };
    const late = setTimeout(destroy, HANDSHAKE_MS);
    secure.on('error', destroy);
    secure.once('close', () => {
      clearTimeout(late);
      lease.leave();
      client.destroy();
    });
    secure.once('secure', () => {
      clearTimeout(late);
      this.tunnels.set(secure, tunnel);
      this.server.emit('connection', secure);
    });
  }

  closeIdle(): void {
    this.server.closeIdleConnections();
  }

  private async handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { gate } = this.options;
    const exchange = gate.begin();
    request.socket.setTimeout(0);
    await answer(gate, exchange, response, () => this.serve(exchange, request, response));
  }

  private async serve(exchange: Exchange, request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { gate, injector, trust } = this.options;
    const tunnel = this.tunnels.get(request.socket);
    if (!tunnel) throw new PermissionDeniedError('egress_denied', 'The caller is not known.');
    gate.count(exchange, tunnel.caller);
    exchange.target = { host: tunnel.host, port: tunnel.port };
    const target = requestTarget(tunnel, request);
    const { inject } = gate.admit(exchange, target);
    const { caller } = tunnel;
    const passage = inject && (await injector.prepare(exchange, target, { inject, caller }));
    const socket = await encrypt(await gate.connect(exchange, target), target.host, trust);
    await forward(exchange, target, [request, response], socket, passage);
  }
}
