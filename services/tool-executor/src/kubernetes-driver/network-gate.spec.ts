import { createLogger } from '@margay/platform';
import { NetworkGate } from './network-gate';
import type { NetworkCheck } from './network-check.repository';
import { NetworkSweep } from './network-sweep';

const DAY = 24 * 3_600_000;
const good = { holds: true, detail: 'closed' };
const bad = { holds: false, detail: 'sandboxes reach the metadata service' };
let now: number;
let stored: Map<string, NetworkCheck>;
let first: string | undefined;
let oldest: string | undefined;

const checks = {
  find: async (namespace: string) => stored.get(namespace),
  store: async (check: NetworkCheck) => void stored.set(check._id, check),
  settleFirst: async (tenantId: string) => (first ??= tenantId),
};
const check = (_id: string, verdict: typeof good) => checks.store({ _id, ...verdict, at: new Date(now) });
const gate = () =>
  new NetworkGate({ checks, oldestTenant: async (except) => (oldest === except ? undefined : oldest), now: () => now });
const refused = { code: 'FAILED_PRECONDITION', reason: 'network_policy_unenforced' };

beforeEach(() => {
  now = Date.parse('2026-12-01T00:00:00Z');
  stored = new Map();
  first = undefined;
  oldest = undefined;
});

describe('until network policies are known to be enforced', () => {
  it('one tenant has sandboxes, a second one has none, and the doctor may look', async () => {
    const door = gate();
    await door.admit('one', 'boxes');
    await expect(door.admit('two', 'boxes')).rejects.toMatchObject(refused);
    await door.admit('one', 'boxes');
    await door.admit('_platform', 'boxes');
  });

  it('the first is the one whose files are the oldest, for good', async () => {
    const door = gate();
    oldest = 'old';
    await expect(door.admit('new', 'boxes')).rejects.toMatchObject(refused);
    oldest = 'new';
    await door.admit('old', 'boxes');
    await expect(gate().admit('new', 'boxes')).rejects.toMatchObject(refused);
  });

  it('says what was found', async () => {
    await check('boxes', bad);
    const door = gate();
    await door.admit('one', 'boxes');
    await expect(door.admit('two', 'boxes')).rejects.toThrow(/reach the metadata service/);
  });

  it('a namespace that is closed serves everybody, whatever another one is', async () => {
    await check('boxes', good);
    await check('other', bad);
    const door = gate();
    await door.admit('one', 'boxes');
    await door.admit('two', 'boxes');
    await door.admit('three', 'other');
    await expect(door.admit('two', 'other')).rejects.toMatchObject(refused);
  });

  it('hears of a change within half a minute, and of one for the better sooner', async () => {
    const door = gate();
    await door.admit('one', 'boxes');
    await expect(door.admit('two', 'boxes')).rejects.toMatchObject(refused);
    await check('boxes', good);
    now += 2_000;
    await door.admit('two', 'boxes');
    await check('boxes', bad);
    now += 30_000;
    await expect(door.admit('two', 'boxes')).rejects.toMatchObject(refused);
  });

  it('a verdict that nobody has renewed for long is none', async () => {
    await check('boxes', good);
    now += 16 * DAY;
    const door = gate();
    await door.admit('one', 'boxes');
    await expect(door.admit('two', 'boxes')).rejects.toThrow(/nobody has looked/);
  });
});

describe('network policies are looked at', () => {
  const logger = createLogger({ level: 'off' });
  let looks: string[];
  let verdict: typeof good | Error;
  const sweep = (namespaces = ['boxes']) => {
    const look = async (namespace: string) => {
      looks.push(namespace);
      if (verdict instanceof Error) throw verdict;
      return verdict;
    };
    return new NetworkSweep({ checks, namespaces, look, everyMs: 7 * DAY, logger, now: () => now });
  };

  beforeEach(() => {
    looks = [];
    verdict = good;
  });

  it('in every namespace after the start, and then weekly', async () => {
    const own = sweep(['boxes', 'team']);
    expect(await own.sweep()).toBe(2);
    now += 7 * DAY;
    expect(await own.sweep()).toBe(0);
    expect(looks).toEqual(['boxes', 'team']);
    now += 1;
    await own.sweep();
    expect(looks).toHaveLength(4);
    now += 1;
    await sweep().sweep();
    expect(looks).toHaveLength(5);
  });

  it('every minute while they are not enforced', async () => {
    verdict = bad;
    const own = sweep();
    expect(await own.sweep()).toBe(1);
    now += 59_000;
    await own.sweep();
    expect(looks).toHaveLength(1);
    now += 1_000;
    verdict = good;
    expect(await own.sweep()).toBe(1);
    expect(stored.get('boxes')).toMatchObject(good);
  });

  it('and the last verdict stands while nothing can be concluded', async () => {
    await check('boxes', good);
    now += 8 * DAY;
    verdict = new Error('no node');
    expect(await sweep().sweep()).toBe(0);
    expect(stored.get('boxes')).toMatchObject(good);
    expect(looks).toHaveLength(1);
  });
});
