import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { pipeline } from 'node:stream/promises';
import { setTimeout as delay } from 'node:timers/promises';
import type { EgressCaller } from '@margay/contracts';
import {
  DeadlineExceededError,
  isMargayError,
  PermissionDeniedError,
  UnavailableError,
  type MargayError,
} from '@margay/errors';
import type { Logger } from '@margay/platform';
import { AddressGuard } from '../address/address-guard';
import { dial } from '../address/dial';
import type { Resolve } from '../address/resolver';
import type { EgressRecord } from '../audit/egress-record';
import type { Limits } from '../limits/limits';
import type { EgressPolicies } from '../policy/policy-file';
import type { Target } from '../policy/judge';
import { demandHello } from './client-hello';
import { Exchange } from './exchange';
import { forward } from './forward';
import { Meter } from './meter';
import { isRefusal, refusalBytes, refusalOf } from './refusal';
import { forwardTarget, tunnelTarget } from './target';

/** @throws UnauthenticatedError `egress_identity` */
export type Identify = (request: IncomingMessage) => Promise<EgressCaller>;

export interface EgressProxyOptions {
  policies: EgressPolicies;
  identify: Identify;
  resolve: Resolve;
  limits: Limits;
  logger: Logger;
  now: () => number;
  onEnd: (record: EgressRecord) => void;
  onBytes: (direction: 'up' | 'down', bytes: number) => void;
  connectTimeoutMs?: number;
  helloTimeoutMs?: number;
}

const CONNECT_TIMEOUT_MS = 10_000;
const HELLO_TIMEOUT_MS = 10_000;
/** Of a connection that asks for nothing. */
const SILENT_TIMEOUT_MS = 60_000;
const DRAIN_LOOK_MS = 50;

/** Forwards HTTP and opens tunnels to hosts that the policy of the caller allows, at addresses that are public. */
export class EgressProxy {
  /** Takes connections, by listening or by its event `connection`. */
  readonly server: Server;
  private guard: AddressGuard;
  private readonly open = new Set<Exchange>();
  private readonly sockets = new Set<Socket>();

  constructor(private readonly options: EgressProxyOptions) {
    const { policies } = options;
    this.guard = new AddressGuard(policies.settings);
    policies.onChange(() => {
      this.guard = new AddressGuard(policies.settings);
      this.cutForbidden();
    });
    // Bodies may take their time: what is idle is cut by the limits of the policy.
    this.server = createServer({ requestTimeout: 0, insecureHTTPParser: false }, (request, response) => {
      void this.handleRequest(request, response);
    });
    this.server.on('connect', (request, client, head) => void this.handleTunnel(request, client as Socket, head));
    this.server.on('connection', (socket) => this.keep(socket));
    this.server.timeout = SILENT_TIMEOUT_MS;
  }

  get openCount(): number {
    return this.open.size;
  }

  /** Lets what is open end by itself for so long. */
  async close(graceMs: number): Promise<void> {
    const until = this.options.now() + graceMs;
    this.server.closeIdleConnections();
    while (this.open.size > 0 && this.options.now() < until) await delay(DRAIN_LOOK_MS);
    for (const exchange of this.open) exchange.cut(new UnavailableError('egress_closing', 'The proxy shuts down.'));
    for (const socket of this.sockets) socket.destroy();
  }

  private async handleRequest(request: IncomingMessage, response: ServerResponse): Promise<void> {
    request.socket.setTimeout(0);
    const exchange = this.begin();
    let failure: unknown;
    try {
      await this.identify(exchange, request);
      const target = forwardTarget(request.method ?? '', request.url ?? '');
      const socket = await this.reach(exchange, target);
      await forward(exchange, target, [request, response], socket);
    } catch (error) {
      failure = this.refuseRequest(exchange, response, causeOf(exchange, error));
    } finally {
      this.end(exchange, failure);
    }
  }

  /** Answers why it failed, unless the answer has begun; returns what the record will tell. */
  private refuseRequest(exchange: Exchange, response: ServerResponse, error: unknown): unknown {
    if (response.headersSent || response.destroyed) {
      response.destroy();
      return error;
    }
    const told = toldTo(error);
    const { status, headers, body } = refusalOf(told);
    exchange.status = status;
    response.writeHead(status, headers).end(body);
    return told;
  }

  private async handleTunnel(request: IncomingMessage, client: Socket, head: Buffer): Promise<void> {
    client.setTimeout(0);
    client.on('error', () => undefined); // its end is noticed where it is read
    const exchange = this.begin();
    let upstream: Socket | undefined;
    let isOpen = false;
    let failure: unknown;
    try {
      await this.identify(exchange, request);
      const target = tunnelTarget(request.url ?? '');
      upstream = await this.reach(exchange, target);
      client.write('HTTP/1.1 200 Connection established\r\n\r\n');
      [isOpen, exchange.status] = [true, 200];
      const hello = await demandHello(client, head, target.host, this.options.helloTimeoutMs ?? HELLO_TIMEOUT_MS);
      exchange.countUp(hello.length);
      upstream.write(hello);
      await join(client, upstream, exchange);
    } catch (error) {
      failure = causeOf(exchange, error);
      if (isOpen) client.destroySoon();
      else failure = this.refuseTunnel(exchange, client, failure);
    } finally {
      upstream?.destroy();
      this.end(exchange, failure);
    }
  }

  private refuseTunnel(exchange: Exchange, client: Socket, error: unknown): unknown {
    const told = toldTo(error);
    const refusal = refusalOf(told);
    exchange.status = refusal.status;
    client.end(refusalBytes(refusal), () => client.destroySoon());
    return told;
  }

  private async identify(exchange: Exchange, request: IncomingMessage): Promise<void> {
    exchange.caller = await this.options.identify(request);
    exchange.limits = this.options.policies.policyOf(exchange.caller.tenantId).limits;
    this.options.limits.request(exchange.caller, exchange.limits);
  }

  /** A connection to the target, if the policy, the limits and the target's addresses allow it. */
  private async reach(exchange: Exchange, target: Target): Promise<Socket> {
    const { caller, limits } = exchange;
    if (!caller || !limits) throw new PermissionDeniedError('egress_denied', 'The caller is not known.');
    exchange.target = target;
    this.demand(exchange, target, caller);
    exchange.lease = this.options.limits.enter(caller, limits);
    const connectTimeoutMs = this.options.connectTimeoutMs ?? CONNECT_TIMEOUT_MS;
    const dialer = { guard: this.guard, resolve: this.options.resolve, connectTimeoutMs };
    const socket = await dial(dialer, target.host, target.port);
    const idle = new DeadlineExceededError('egress_timeout', `Nothing moved for ${limits.idleSeconds} seconds.`);
    socket.setTimeout(limits.idleSeconds * 1_000, () => {
      exchange.cut(idle);
      socket.destroy();
    });
    socket.on('error', () => undefined); // its end is noticed where it is read
    return socket;
  }

  private demand(exchange: Exchange, target: Target, caller: EgressCaller): void {
    const verdict = this.options.policies.judge(target, caller);
    if (verdict.rule !== undefined) exchange.rule = verdict.rule;
    if (verdict.isAllowed) return;
    exchange.why = verdict.why;
    const why = verdict.why === 'unreadable' ? 'its rule needs requests that can be read' : 'no rule allows it';
    throw new PermissionDeniedError('egress_denied', `${target.host}:${target.port} cannot be reached: ${why}.`);
  }

  /** What a new policy no longer allows ends at once. */
  private cutForbidden(): void {
    for (const exchange of this.open) {
      const { target, caller } = exchange;
      if (!target || !caller || this.options.policies.judge(target, caller).isAllowed) continue;
      exchange.cut(new PermissionDeniedError('egress_denied', `${target.host} may no longer be reached.`));
    }
  }

  private begin(): Exchange {
    const exchange = new Exchange(this.options.now, this.options.onBytes);
    this.open.add(exchange);
    return exchange;
  }

  private end(exchange: Exchange, failure: unknown): void {
    this.open.delete(exchange);
    exchange.lease?.leave();
    this.options.onEnd(exchange.record(failure));
  }

  private keep(socket: Socket): void {
    this.sockets.add(socket);
    socket.once('close', () => this.sockets.delete(socket));
  }
}

/** Whoever cut it off knows better than the parts that broke by that. */
function causeOf({ signal }: Exchange, error: unknown): unknown {
  return signal.aborted ? (signal.reason as unknown) : error;
}

function toldTo(error: unknown): MargayError {
  if (isMargayError(error) && isRefusal(error)) return error;
  return new UnavailableError('egress_connect', 'The host broke off the connection.', { cause: error });
}

/** Passes bytes both ways until both sides have ended. */
async function join(client: Socket, upstream: Socket, exchange: Exchange): Promise<void> {
  const { signal } = exchange;
  await Promise.all([
    pipeline(client, new Meter(exchange.countUp), upstream, { signal }),
    pipeline(upstream, new Meter(exchange.countDown), client, { signal }),
  ]);
}
