import type { IncomingMessage, Server } from 'node:http';
import type { Socket } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import { NestFactory } from '@nestjs/core';
import type { NestFastifyApplication } from '@nestjs/platform-fastify';
import { subjects } from '@margay/contracts';
import { nestLogger, systemPrincipal, type KeyRing, type Logger } from '@margay/platform';
import type { Registry } from 'prom-client';
import { AppModule } from './app.module';
import { Admission } from './auth/admission';
import { Authenticator } from './auth/authenticator';
import { RateLimiter, type RateLimit } from './auth/rate-limiter';
import { Tickets } from './auth/tickets';
import { Backends } from './backends';
import { refuseExpectations } from './http/broken-requests';
import { ErrorFilter } from './http/error.filter';
import { RECEIPT_LIMITS, type ReceiptLimits } from './http/receipt';
import { addHooks, enableCors, fastifyAdapter } from './http/server';
import { GatewayMetrics } from './metrics';
import type { StreamSettings } from './stream/settings';
import type { HubBus } from './stream/live-bus';
import { StoreGeneration } from './stream/store-generation';
import { StreamHub } from './stream/stream-hub';

const IDLE_SWEEP_MS = 50;
const CLOSE_GRACE_MS = 10_000;
/** So long, or as streams are drained if that is less, kept connections may bring one more request. */
const FAREWELL_MS = 1_000;

export interface GatewayParts {
  listen: { host: string; port: number };
  backends: Backends;
  /** Signs tickets. */
  keys: KeyRing;
  bus: HubBus;
  corsOrigins: '*' | string[];
  rateLimit: RateLimit;
  streams: StreamSettings;
  /** Absent: as usual. */
  receipt?: ReceiptLimits;
  masterToken?: string | undefined;
  logger: Logger;
  registry: Registry;
}

export interface RunningGateway {
  port: number;
  hub: StreamHub;
  /** Ends streams first, then the listener. */
  close(): Promise<void>;
}

/** Puts the public API together and listens. */
export async function startGatewayApp(parts: GatewayParts): Promise<RunningGateway> {
  const { backends, bus, logger, masterToken, listen, receipt = RECEIPT_LIMITS } = parts;
  const metrics = new GatewayMetrics(parts.registry);
  // Keys belong to no tenant until they are known.
  const call = { principal: systemPrincipal('gateway', 'platform') };
  const authenticator = new Authenticator({
    lookup: (request) => backends.access.authenticate(request, call),
    masterToken,
  });
  const hub = new StreamHub({ backends, bus, authenticator, settings: parts.streams, metrics, logger });
  const tickets = new Tickets(parts.keys, authenticator);
  const admission = new Admission(authenticator, tickets, new RateLimiter(parts.rateLimit), metrics);
  const filter = new ErrorFilter(logger);

  const provided = [
    { provide: Backends, useValue: backends },
    { provide: StreamHub, useValue: hub },
    { provide: Tickets, useValue: tickets },
    { provide: StoreGeneration, useValue: new StoreGeneration(backends) },
  ];
  const root = { module: AppModule, global: true, providers: provided, exports: provided };
  const options = { logger: nestLogger(logger), bodyParser: false, abortOnError: false };
  const app = await NestFactory.create<NestFastifyApplication>(root, fastifyAdapter(filter), options);
  app.useGlobalFilters(filter);
  enableCors(app, parts.corsOrigins);
  addHooks(app.getHttpAdapter().getInstance(), { admission, metrics, receipt, logger });
  const stopWatchingKeys = bus.subscribe(subjects.config('keys'), () => hub.keysChanged());
  refuseExpectations(app.getHttpServer());
  const farewell = endConnectionsWithAnswers(app);
  hub.start();
  const unused = unusedConnections(app.getHttpServer());
  await app.listen(listen.port, listen.host);
  return {
    port: portOf(app),
    hub,
    async close() {
      farewell.begin();
      await Promise.all([hub.close(), pause(Math.min(parts.streams.drainMs, FAREWELL_MS))]);
      stopWatchingKeys();
      await closeApp(app, unused);
    },
  };
}

/** Once begun, every answer ends its connection: a client that keeps it would lose its next request in the closing. */
function endConnectionsWithAnswers(app: NestFastifyApplication): { begin: () => void } {
  let hasBegun = false;
  const fastify = app.getHttpAdapter().getInstance();
  fastify.addHook('onSend', (_request, reply, _payload, done) => {
    if (hasBegun) reply.header('connection', 'close');
    done();
  });
  return { begin: () => void (hasBegun = true) };
}

/** Connections on which nothing was asked yet: clients keep such in reserve, and Node does not count them as idle. */
function unusedConnections(server: Server): ReadonlySet<Socket> {
  const unused = new Set<Socket>();
  server.on('connection', (socket: Socket) => {
    unused.add(socket);
    socket.once('close', () => unused.delete(socket));
  });
  server.on('request', ({ socket }: IncomingMessage) => unused.delete(socket));
  return unused;
}

/** Answers under way are finished; connections that only wait for another request are not kept. */
async function closeApp(app: NestFastifyApplication, unused: ReadonlySet<Socket>): Promise<void> {
  const server = app.getHttpServer();
  const sweeper = setInterval(() => {
    server.closeIdleConnections();
    for (const socket of unused) socket.destroy();
  }, IDLE_SWEEP_MS);
  const deadline = setTimeout(() => server.closeAllConnections(), CLOSE_GRACE_MS);
  await app.close();
  clearInterval(sweeper);
  clearTimeout(deadline);
}

function portOf(app: NestFastifyApplication): number {
  const address: unknown = app.getHttpServer().address();
  return typeof address === 'object' && address !== null && 'port' in address ? Number(address.port) : 0;
}
