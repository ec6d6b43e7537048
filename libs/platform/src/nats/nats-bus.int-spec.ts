import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, type Server } from 'node:net';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ensureNats, freePorts, launcherConfig, startNats, type RunningNats } from '@margay/launcher';
import { createLogger } from '../logging/logger';
import { currentTraceparent, withSpan } from '../telemetry/spans';
import { startTelemetry } from '../telemetry/telemetry';
import { NatsBus } from './nats-bus';

const logger = createLogger({ service: 'test', level: 'off' });
const text = (data: Uint8Array) => Buffer.from(data).toString();

let directory: string;
let binary: string;
let port: number;
let server: RunningNats;
let buses: NatsBus[] = [];

/** Fault tests need a server of their own, so one named by the environment is not used. */
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'margay-bus-'));
  const { natsUrl: _shared, ...config } = launcherConfig();
  const found = await ensureNats({ config });
  if (found.kind === 'url') throw new Error('a server of our own was expected');
  ({ binary } = found);
  [port] = (await freePorts(1)) as [number];
  server = await startNats({ directory, binary, port });
}, 180_000);
afterAll(async () => {
  await server.stop();
  await rm(directory, { recursive: true });
});
afterEach(async () => {
  await Promise.all(buses.map((bus) => bus.close()));
  buses = [];
});

function newBus(url = server.url, firstConnectWaitMs?: number): NatsBus {
  const bus = new NatsBus({ url, name: 'test', logger, ...(firstConnectWaitMs && { firstConnectWaitMs }) });
  buses.push(bus);
  return bus;
}

async function started(): Promise<NatsBus> {
  const bus = newBus();
  await bus.start();
  return bus;
}

function collect(bus: NatsBus, subject: string) {
  const received: string[] = [];
  const waiting: { count: number; resolve: () => void }[] = [];
  const stop = bus.subscribe(subject, (data, from) => {
    received.push(`${from} ${text(data)}`);
    for (const { count, resolve } of waiting) if (received.length >= count) resolve();
  });
  const until = (count: number) =>
    new Promise<void>((resolve) => (received.length >= count ? resolve() : waiting.push({ count, resolve })));
  return { received, stop, until };
}

describe('NatsBus', () => {
  it('delivers between processes, by wildcard, text and bytes alike', async () => {
    const [sender, receiver] = await Promise.all([started(), started()]);
    const { received, until } = collect(receiver, 'margay.acme.session.*.event');
    await receiver.flush();
    sender.publish('margay.acme.session.s1.event', 'eins');
    sender.publish('margay.acme.session.s2.event', Buffer.from('zwei'));
    await until(2);
    expect(received).toEqual(['margay.acme.session.s1.event eins', 'margay.acme.session.s2.event zwei']);
  });

  it('stops delivering once unsubscribed, and survives a listener that throws', async () => {
    const bus = await started();
    const failing = bus.subscribe('a', () => {
      throw new Error('broken listener');
    });
    const { received, stop, until } = collect(bus, 'a');
    bus.publish('a', '1');
    await until(1);
    stop();
    failing();
    bus.publish('a', '2');
    await bus.flush();
    expect(received).toEqual(['a 1']);
  });

  it('carries the trace of the publisher to the listener', async () => {
    const telemetry = await startTelemetry({
      service: 'test',
      exporter: { export: (_, done) => done({ code: 0 }), shutdown: async () => undefined },
    });
    try {
      const bus = await started();
      const arrived = new Promise<string | undefined>((resolve) =>
        bus.subscribe('traced', () => resolve(currentTraceparent())),
      );
      const sent = await withSpan('publish', {}, () => {
        bus.publish('traced', '{}');
        return currentTraceparent();
      });
      expect(sent).toMatch(/^00-/);
      expect(await arrived).toBe(sent);
    } finally {
      await telemetry.close();
    }
  });

  it('drops what is published while the server is away, and goes on after it is back', async () => {
    const bus = await started();
    const { received, until } = collect(bus, 'b');
    await bus.flush();
    const reconnected = new Promise<void>((resolve) => bus.onReconnect(resolve));
    await server.stop();
    while (bus.isConnected) await new Promise((resolve) => setImmediate(resolve));
    bus.publish('b', 'lost');
    await bus.flush();
    server = await startNats({ directory, binary, port });
    await reconnected;
    await bus.flush();
    bus.publish('b', 'seen');
    await until(1);
    expect(received).toEqual(['b seen']);
  });

  it('starts without a server and catches up when there is one', async () => {
    await server.stop();
    const bus = newBus(server.url, 50);
    await bus.start();
    expect(bus.isConnected).toBe(false);
    const { received, until } = collect(bus, 'c');
    bus.publish('c', 'lost');
    const connected = new Promise<void>((resolve) => bus.onReconnect(resolve));
    server = await startNats({ directory, binary, port });
    await connected;
    bus.publish('c', 'seen');
    await until(1);
    expect(received).toEqual(['c seen']);
  });

  it('refuses a server older than 2.11', async () => {
    const old = await startOldServer();
    try {
      const bus = newBus(`nats://127.0.0.1:${(old.address() as AddressInfo).port}`);
      await expect(bus.start()).rejects.toMatchObject({ code: 'FAILED_PRECONDITION', reason: 'nats_version' });
    } finally {
      await new Promise((resolve) => old.close(resolve));
    }
  });

  it('ignores calls after it was closed', async () => {
    const bus = await started();
    await bus.close();
    bus.publish('d', 'x');
    await bus.flush();
    expect(bus.isConnected).toBe(false);
  });
});

/** Speaks just enough of the protocol to be taken for a 2.9 server. */
async function startOldServer(): Promise<Server> {
  const old = createServer((socket) => {
    socket.on('error', () => socket.destroy());
    socket.write('INFO {"server_id":"OLD","version":"2.9.10","proto":1,"max_payload":1048576,"headers":true}\r\n');
    socket.on('data', (data) => {
      if (data.includes('PING')) socket.write('PONG\r\n');
    });
  });
  await new Promise<void>((resolve) => old.listen(0, '127.0.0.1', resolve));
  return old;
}
