import { UnavailableError } from '@margay/errors';
import { freePorts } from '@margay/launcher';
import type { StartService } from '@margay/platform';
import { startMargay, type MargayProcess, type ProcessOptions } from './margay-process';
import type { ServiceName } from './service-names';

let running: MargayProcess | undefined;
let order: string[] = [];
let lines: string[] = [];

afterEach(async () => {
  await running?.stop('test over');
  running = undefined;
  order = [];
  lines = [];
});

const loaded = (start: StartService) => async () => start;
const fake = (name: string) => loaded(faked(name));
const faked =
  (name: string): StartService =>
  async (_, { management }) => {
    order.push(`start ${name}`);
    management.registerCheck(name, 'ready', () => undefined);
    return { close: async () => void order.push(`close ${name}`) };
  };

async function start(
  services: ServiceName[],
  starters: ProcessOptions['starters'],
  environment: NodeJS.ProcessEnv = {},
) {
  running = await startMargay({
    services,
    starters,
    environment: { MARGAY_LOG_LEVEL: 'info', ...environment },
    version: '1.2.3',
    write: (line) => lines.push(line),
  });
  return running;
}

describe('startMargay', () => {
  it('starts in order, says once that it is ready, and closes in reverse', async () => {
    const { managementPort, stop } = await start(['session', 'gateway'], {
      session: fake('session'),
      gateway: fake('gateway'),
    });
    const response = await fetch(`http://127.0.0.1:${managementPort}/readyz`);
    expect(response.status).toBe(200);
    expect(await response.json()).toMatchObject({ status: 'ok', checks: { session: {}, gateway: {} } });
    const readiness = lines
      .filter((line) => line.includes('"margay is ready"'))
      .map((line) => JSON.parse(line) as object);
    expect(readiness).toEqual([
      expect.objectContaining({ services: ['session', 'gateway'], managementPort, version: '1.2.3' }),
    ]);
    await stop('SIGTERM');
    expect(order).toEqual(['start session', 'start gateway', 'close gateway', 'close session']);
    await expect(fetch(`http://127.0.0.1:${managementPort}/livez`)).rejects.toThrow();
  });

  it('is alive but not ready while a service starts', async () => {
    const listen = `127.0.0.1:${(await freePorts(1))[0]}`;
    const statuses: number[] = [];
    const probing: StartService = async (environment, shared) => {
      for (const path of ['livez', 'startupz', 'readyz'])
        statuses.push((await fetch(`http://${listen}/${path}`)).status);
      return faked('session')(environment, shared);
    };
    await start(['session'], { session: loaded(probing) }, { MARGAY_MANAGEMENT_LISTEN: listen });
    expect(statuses).toEqual([200, 503, 503]);
  });

  it('closes what was started when a later service fails, and says which error', async () => {
    const failing: StartService = () => Promise.reject(new UnavailableError('store_unavailable', 'The store is away.'));
    const attempt = start(['session', 'gateway'], { session: fake('session'), gateway: loaded(failing) });
    await expect(attempt).rejects.toMatchObject({ reason: 'store_unavailable' });
    expect(order).toEqual(['start session', 'close session']);
  });

  it('names a service that this build does not contain', async () => {
    await expect(start(['channel'], {})).rejects.toMatchObject({ reason: 'service_missing' });
  });

  it('stops at a bad environment before anything is started', async () => {
    const attempt = start(['session'], { session: fake('session') }, { MARGAY_LOG_LEVEL: 'loud' });
    await expect(attempt).rejects.toMatchObject({ code: 'INVALID_ARGUMENT', reason: 'bad_environment' });
    expect(order).toEqual([]);
  });
});
