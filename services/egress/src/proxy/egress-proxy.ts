import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { pipeline } from 'node:stream/promises';
import { setTimeout as delay } from 'node:timers/promises';
import type { Interceptor } from '../intercept/interceptor';
import { answer, causeOf, toldTo } from './answer';
import { demandHello } from './client-hello';
import type { Exchange } from './exchange';
import { forward } from './forward';
import { refuse, type Gate } from './gate';
import { Meter } from './meter';
import { OWN_HOST, ownAnswer } from './own-answers';
import { refusalBytes, refusalOf } from './refusal';
import { forwardTarget, tunnelTarget } from './target';

export interface EgressProxyOptions {
  gate: Gate;
  /** Reads the requests in tunnels; absent: tunnels whose requests must be read are refused. */
  interceptor?: Interceptor | undefined;
  now: () => number;
  /** Tunnels may carry anything at once; else they must begin with TLS to the host that they were opened to. */
  isAnyProtocol?: boolean;
}

const HELLO_TIMEOUT_MS = 10_000;
/** Of a connection that asks for nothing. */
const SILENT_TIMEOUT_MS = 60_000;
const DRAIN_LOOK_MS = 50;

/** Forwards HTTP and opens tunnels to hosts that the policy of the caller allows, at addresses that are public. */
export class EgressProxy {
  /** Takes connections, by listening or by its event `connection`. */
  readonly server: Server;
  private readonly sockets = new Set<Socket>();

  constructor(private readonly options: EgressProxyOptions) {
    // Bodies may take their time: what is idle is cut by the limits of the policy.
    this.server = createServer({ requestTimeout: 0, insecureHTTPParser: false }, (request, response) => {
      void this.handleRequest(request, response);
    });
    this.server.on('connect', (request, client, head) => void this.handleTunnel(request, client as Socket, head));
    this.server.on('connection', (socket) => this.keep(socket));
    this.server.timeout = SILENT_TIMEOUT_MS;
  }

  /** Lets what is open end by itself for so long. */
  async close(graceMs: number): Promise<void> {
    const { gate, interceptor, now } = this.options;
    const until = now() + graceMs;
    this.server.closeIdleConnections();
    interceptor?.closeIdle();
    while (gate.openCount > 0 && now() < until) await delay(DRAIN_LOOK_MS);
    gate.cutAll();
    for (const socket of this.sockets) socket.destroy();
  }

  private async handleRequest(request: IncomingMessage, response: ServerResponse): Promise<void> {
    request.socket.setTimeout(0);
    const { gate } = this.options;
    const exchange = gate.begin();
    await answer(gate, exchange, response, async () => {
      const caller = await gate.identify(exchange, request);
      const target = forwardTarget(request.method ?? '', request.url ?? '');
      const own = target.host === OWN_HOST && ownAnswer(target.request.path, gate.policyOf(caller), caller);
      if (typeof own === 'string') {
        exchange.isUntold = true;
        return void response.end(own);
      }
      gate.admit(exchange, target);
      await forward(exchange, target, [request, response], await gate.connect(exchange, target));
    });
  }

  private async handleTunnel(request: IncomingMessage, client: Socket, head: Buffer): Promise<void> {
    client.setTimeout(0);
    client.on('error', () => undefined); // its end is noticed where it is read
    const { gate, interceptor, isAnyProtocol } = this.options;
    const exchange = gate.begin();
    let upstream: Socket | undefined;
    let isOpen = false;
    let failure: unknown;
    try {
      const caller = await gate.identify(exchange, request);
      const target = tunnelTarget(request.url ?? '');
      const { intercept } = gate.admit(exchange, target);
      if (intercept && !interceptor) throw refuse(exchange, 'unreadable');
      if (!intercept) upstream = await gate.connect(exchange, target);
      client.write('HTTP/1.1 200 Connection established\r\n\r\n');
      [isOpen, exchange.status] = [true, 200];
      const hello = isAnyProtocol ? head : await demandHello(client, head, target.host, HELLO_TIMEOUT_MS);
      if (upstream) {
        exchange.countUp(hello.length);
        if (hello.length > 0) upstream.write(hello);
        await join(client, upstream, exchange);
      } else {
        interceptor?.take(client, hello, { caller, ...target });
        exchange.isUntold = true;
      }
    } catch (error) {
      failure = causeOf(exchange, error);
      if (isOpen) client.destroySoon();
      else failure = this.refuseTunnel(exchange, client, failure);
    } finally {
      upstream?.destroy();
      gate.end(exchange, failure);
    }
  }

  private refuseTunnel(exchange: Exchange, client: Socket, error: unknown): unknown {
    const told = toldTo(error);
    const refusal = refusalOf(told);
    exchange.status = refusal.status;
    client.end(refusalBytes(refusal), () => client.destroySoon());
    return told;
  }

  private keep(socket: Socket): void {
    this.sockets.add(socket);
    socket.once('close', () => this.sockets.delete(socket));
  }
}

/** Passes bytes both ways until both sides have ended. */
async function join(client: Socket, upstream: Socket, exchange: Exchange): Promise<void> {
  const { signal } = exchange;
  await Promise.all([
    pipeline(client, new Meter(exchange.countUp), upstream, { signal }),
    pipeline(upstream, new Meter(exchange.countDown), client, { signal }),
  ]);
}
