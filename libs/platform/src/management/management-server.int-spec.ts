import { UnavailableError } from '@margay/errors';
import { Counter } from 'prom-client';
import { createLogger } from '../logging/logger';
import { ManagementServer } from './management-server';

let server: ManagementServer;
let origin: string;

beforeEach(async () => {
  const logger = createLogger({ service: 'test', level: 'off' });
  server = new ManagementServer({ listen: '127.0.0.1:0', logger, version: '1.2.3' });
  origin = `http://127.0.0.1:${(await server.start()).port}`;
});
afterEach(() => server.close());

async function get(path: string) {
  const response = await fetch(`${origin}${path}`);
  return { status: response.status, body: (await response.json()) as unknown };
}

describe('ManagementServer', () => {
  it('is alive at once, but started and ready only when told', async () => {
    expect((await get('/livez')).status).toBe(200);
    expect(await get('/startupz')).toMatchObject({ status: 503, body: { failed: ['process'] } });
    expect((await get('/readyz')).status).toBe(503);
    server.setReady(true);
    expect(await get('/startupz')).toMatchObject({ status: 200 });
    expect(await get('/readyz')).toMatchObject({ status: 200, body: { status: 'ok' } });
    server.setReady(false);
    expect((await get('/readyz')).status).toBe(503);
    expect((await get('/startupz')).status).toBe(200);
  });

  it('names the failed checks and hides the texts of foreign errors', async () => {
    server.setReady(true);
    server.registerCheck('store', 'ready', () =>
      Promise.reject(new UnavailableError('store_unavailable', 'The store is away.')),
    );
    server.registerCheck('nats', 'ready', () => {
      throw new Error('canary at nats://user:pass@host');
    });
    const { status, body } = await get('/readyz');
    expect(status).toBe(503);
    expect(body).toMatchObject({
      status: 'failed',
      failed: ['store', 'nats'],
      checks: { store: { detail: 'The store is away.' } },
    });
    expect(JSON.stringify(body)).not.toContain('canary');
    expect((await get('/livez')).status).toBe(200);
  });

  it('shows in its metrics which parts of readiness hold, as they are when somebody asks', async () => {
    let isAway = false;
    const remove = server.registerCheck('store', 'ready', () => {
      if (isAway) throw new UnavailableError('store_unavailable', 'The store is away.');
    });
    server.registerCheck('nats', 'ready', () => ({ degraded: 'NATS is down' }));
    const shown = async () =>
      (await (await fetch(`${origin}/metrics`)).text())
        .match(/^margay_ready_check\{.*$/gm)
        ?.map((line) => line.slice(19));
    expect(await shown()).toEqual(['check="process.loop"} 1', 'check="store"} 1', 'check="nats"} 0.5']);
    isAway = true;
    expect(await shown()).toContain('check="store"} 0');
    remove();
    expect(await shown()).toEqual(['check="process.loop"} 1', 'check="nats"} 0.5']);
  });

  it('stays ready and says why it is degraded', async () => {
    server.setReady(true);
    const remove = server.registerCheck('models', 'ready', () => ({ degraded: 'breaker of demo is open' }));
    expect(await get('/readyz')).toEqual({
      status: 200,
      body: {
        status: 'degraded',
        checks: {
          'process.loop': { status: 'ok' },
          models: { status: 'degraded', detail: 'breaker of demo is open' },
        },
      },
    });
    remove();
    expect(await get('/readyz')).toMatchObject({ body: { status: 'ok' } });
  });

  it('shows metrics of the process and of services', async () => {
    new Counter({ name: 'margay_takeovers_total', help: 'x', registers: [server.registry] }).inc(3);
    const text = await (await fetch(`${origin}/metrics`)).text();
    expect(text).toContain('margay_takeovers_total 3');
    expect(text).toContain('margay_build_info{version="1.2.3"} 1');
    expect(text).toContain('margay_event_loop_delay_seconds_bucket');
  });

  it('serves registered routes and nothing else', async () => {
    server.registerRoute('/internal/demand/', async (pool) => ({ body: { pool, runs: 2 } }));
    expect(await get('/internal/demand/default')).toEqual({ status: 200, body: { pool: 'default', runs: 2 } });
    expect((await get('/other')).status).toBe(404);
    expect((await fetch(`${origin}/livez`, { method: 'POST' })).status).toBe(405);
  });

  it('says that a port is taken', async () => {
    const logger = createLogger({ service: 'test', level: 'off' });
    const second = new ManagementServer({ listen: origin.slice(7), logger });
    await expect(second.start()).rejects.toMatchObject({ reason: 'listen_failed' });
    await second.close();
  });
});
