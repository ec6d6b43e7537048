import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { accessPb, sessionsPb } from '@margay/contracts';
import { openNats, type OpenServer } from '@margay/launcher';
import { createLogger, generateKeys, GrpcServer, KeyRing, ManagementServer, NatsBus } from '@margay/platform';
import { FakeSession } from './spec/fake-session';
import { SseReader } from './spec/sse-reader';
import { startGateway } from './start';

/** The service as it is started, with a real broker between it and the session service. */
describe('gateway on a real broker', () => {
  const logger = createLogger({ service: 'spec', level: 'off' });
  const closers: (() => Promise<void> | void)[] = [];
  let directory: string;
  let nats: OpenServer;
  let management: ManagementServer;
  let managementUrl: string;
  let session: FakeSession;
  let gateway: Awaited<ReturnType<typeof startGateway>>;
  let url: string;
  let headers: Record<string, string>;

  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), 'margay-gateway-'));
    closers.push(() => rm(directory, { recursive: true, force: true }));
    nats = await openNats({ directory: join(directory, 'nats') });
    closers.push(() => nats.stop());
    await generateKeys(directory, ['gateway', 'session', 'tool-executor']);
    const bus = new NatsBus({ url: nats.url, name: 'session', logger });
    await bus.start();
    closers.push(() => bus.close());
    session = new FakeSession(bus);
    const keys = await KeyRing.load(directory, 'session');
    const server = new GrpcServer({ listen: '127.0.0.1:0', keys, logger })
      .add(sessionsPb.SessionsDefinition, session.sessions())
      .add(accessPb.AccessDefinition, session.access());
    const { port } = await server.start();
    closers.push(() => server.close(50));
    management = new ManagementServer({ listen: '127.0.0.1:0', logger });
    managementUrl = `http://127.0.0.1:${(await management.start()).port}`;
    closers.push(() => management.close());
    const environment = {
      MARGAY_GATEWAY_LISTEN: '127.0.0.1:0',
      MARGAY_SESSION_URL: `127.0.0.1:${port}`,
      MARGAY_TOOL_EXECUTOR_URL: `127.0.0.1:${port}`,
      MARGAY_NATS_URL: nats.url,
      MARGAY_KEYS_DIR: directory,
      MARGAY_STREAM_DRAIN_SECONDS: '0.05',
    };
    gateway = await startGateway(environment, { logger, management });
    closers.push(() => gateway.close());
    management.setReady(true);
    url = `http://127.0.0.1:${gateway.port}`;
    headers = { 'X-API-KEY': session.addKey().text };
  });

  afterAll(async () => {
    for (const close of closers.reverse()) await close();
  });

  it('streams a run over the broker, fragments included, and ends', async () => {
    const id = await session.createSession();
    await session.accept(id, 'hi');
    await session.claim(id);
    const reader = await SseReader.open(`${url}/api/sessions/${id}/stream`, headers);
    await reader.untilType('session_state');
    const payload = { agent_id: 'root', depth: 0, step: 1, model: 'scripted/echo' };
    await session.step(id, { type: 'llm_call_start', payload });
    session.publishDelta(id, 'Hello');
    await reader.untilType('agent_message_delta');
    // Nobody else tells the gateway of the end.
    session.delays.set('probeCommits', new Promise(() => undefined));
    await session.finish(id);
    await reader.untilEnd();
    session.delays.clear();
    expect(reader.types.slice(-4)).toEqual(['assistant', 'completion', 'session_state', 'stream_end']);
  });

  it('drops cached keys when they change', async () => {
    const key = session.addKey();
    const models = () => fetch(`${url}/api/models`, { headers: { 'X-API-KEY': key.text } });
    expect((await models()).status).toBe(200);
    session.revokeKey(key);
    const bus = new NatsBus({ url: nats.url, name: 'spec', logger });
    await bus.start();
    bus.publish('margay.config.keys', '{}');
    await bus.flush();
    await bus.close();
    await waitFor(async () => (await models()).status === 401);
  });

  it('is ready, shows its metrics, and is not ready first of all when it closes', async () => {
    expect((await fetch(`${managementUrl}/readyz`)).status).toBe(200);
    expect(await (await fetch(`${managementUrl}/metrics`)).text()).toContain('margay_streams_open');
    const id = await session.createSession();
    await session.accept(id, 'hi');
    const reader = await SseReader.open(`${url}/api/sessions/${id}/stream`, headers);
    await reader.untilType('session_state');
    const closing = gateway.close();
    expect((await fetch(`${managementUrl}/readyz`)).status).toBe(503);
    await reader.untilEnd();
    await closing;
    expect(reader.ended).toBe('clean');
    await expect(fetch(`${url}/healthz`)).rejects.toThrow();
  });
});

async function waitFor(condition: () => Promise<boolean>): Promise<void> {
  const deadline = performance.now() + 60_000;
  while (!(await condition())) {
    if (performance.now() > deadline) throw new Error('did not come true in time');
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}
