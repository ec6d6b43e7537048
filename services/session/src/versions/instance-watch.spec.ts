import { createLogger } from '@margay/platform';
import { InstanceWatch } from './instance-watch';
import type { InstanceRow } from './instance.repository';
import { instancesHandlers } from './instances.grpc';

const logger = createLogger({ service: 'spec', level: 'off' });
let rows: InstanceRow[];
let nowMs: number;
let watch: InstanceWatch;

beforeEach(() => {
  [rows, nowMs] = [[], 1_000];
  const instances = {
    listAll: async () => rows.map((row) => ({ ...row })),
    remove: async (id: string) => void (rows = rows.filter(({ _id }) => _id !== id)),
  };
  watch = new InstanceWatch({ instances, version: '1.1.0', logger, now: () => nowMs });
});

function put(service: string, version: string | undefined, _id = `${service} ${version}`): InstanceRow {
  const row: InstanceRow = { _id, tenantId: '_platform', service, beat: 1, ...(version && { version }) };
  rows.push(row);
  return row;
}

async function pass(ms: number, ...beating: InstanceRow[]): Promise<void> {
  for (let passed = 0; passed < ms; passed += 5_000) {
    nowMs += 5_000;
    for (const row of beating) row.beat += 1;
    await watch.look();
  }
}

describe('the watch over versions', () => {
  it('knows the lowest session version that lives; without others it is its own', async () => {
    await watch.look();
    expect(watch.lowestSession()).toBe('1.1.0');
    put('session', '1.0.9');
    put('session', '1.2.0');
    put('session', undefined);
    put('gateway', '0.1.0');
    await watch.look();
    expect(watch.lowestSession()).toBe('1.0.9');
  });

  it('forgets a replica whose beat stands still for 15 s of its own clock', async () => {
    const old = put('session', '1.0.0');
    await watch.look();
    await pass(60_000, old);
    expect(watch.lowestSession()).toBe('1.0.0');
    await pass(15_000);
    expect(watch.lowestSession()).toBe('1.1.0');
  });

  it('is not ready while a newer client lives, and is once that has left', async () => {
    put('gateway', '1.2.0');
    await watch.look();
    expect(() => watch.checkReady()).toThrow(/gateway of version 1.2.0 still lives/);
    rows = [];
    await watch.look();
    watch.checkReady();
  });

  it('is ready once a newer client has fallen silent', async () => {
    put('gateway', '1.2.0');
    await pass(5_000);
    expect(() => watch.checkReady()).toThrow(/version 1.2.0/);
    await pass(15_000);
    watch.checkReady();
  });

  it('stays ready in an upgrade, whose new clients come up while it still serves the old ones', async () => {
    await watch.look();
    watch.checkReady();
    put('gateway', '1.2.0');
    await watch.look();
    watch.checkReady();
  });

  it('minds neither older clients nor newer session replicas', async () => {
    put('agent-runner', '1.0.0');
    put('session', '2.0.0');
    await watch.look();
    watch.checkReady();
  });

  it('tells runners which of their servers are older, and those which runners are newer', async () => {
    const before = put('tool-executor', '1.0.0');
    put('agent-runner', '1.1.0');
    put('gateway', '1.2.0');
    await watch.look();
    const olderServer = 'tool-executor of version 1.0.0';
    expect(watch.neighboursOf('agent-runner', '1.1.0')).toEqual({ olderServer, newerClient: '' });
    expect(watch.neighboursOf('agent-runner', '1.0.0')).toEqual({ olderServer: '', newerClient: '' });
    expect(watch.neighboursOf('tool-executor', '1.0.0')).toEqual({ olderServer: '', newerClient: 'agent-runner of version 1.1.0' }); // prettier-ignore
    expect(watch.neighboursOf('gateway', '1.1.0')).toEqual({ olderServer: '', newerClient: '' });
    rows = rows.filter((row) => row !== before);
    await watch.look();
    expect(watch.neighboursOf('agent-runner', '1.1.0').olderServer).toBe('');
  });

  it('removes rows of clients that are silent for a minute, and leaves those of replicas to others', async () => {
    put('gateway', '1.0.0');
    put('session', '1.0.0');
    await watch.look();
    await pass(60_000);
    expect(rows.map(({ service }) => service)).toEqual(['session']);
  });
});

describe('the beat of a client', () => {
  const beat = (principal: string, fields: object) => {
    const instances = {
      beat: async ({ _id, service, version }: { _id: string; service: string; version: string }) => void put(service, version, _id), // prettier-ignore
      remove: async (id: string) => void (rows = rows.filter(({ _id }) => _id !== id)),
    };
    const request = { instance: 'abcdef0123456789', version: '1.1.0', leaves: false, ...fields };
    return instancesHandlers({ instances, watch, generation: 0 }).beat(request, {
      principal: () => ({ principal }),
    } as never);
  };

  it('is noted under the name of its service, until it leaves', async () => {
    expect(await beat('system:gateway', {})).toEqual({
      lowestSessionVersion: '1.1.0',
      olderServer: '',
      newerClient: '',
    });
    expect(rows).toMatchObject([{ _id: 'gateway.abcdef0123456789', service: 'gateway', version: '1.1.0' }]);
    await beat('system:gateway', { leaves: true });
    expect(rows).toEqual([]);
  });

  it.each([
    ['user:ada', {}, 'services_only'],
    ['system:session', {}, 'services_only'],
    ['system:gateway', { version: 'latest' }, 'bad_request'],
    ['system:gateway', { instance: '$ne' }, 'bad_request'],
  ])('of %s with %j is refused', async (principal, fields, reason) => {
    await expect(beat(principal, fields)).rejects.toMatchObject({ reason });
    expect(rows).toEqual([]);
  });
});
