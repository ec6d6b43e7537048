import { EgressLimits } from '@margay/contracts';
import { Limits } from './limits';

const of = (sandboxId: string, tenantId = 't1') => ({ tenantId, sandboxId });
let now: number;
let limits: Limits;

beforeEach(() => {
  now = Date.UTC(2030, 0, 1, 12);
  limits = new Limits(() => now);
});

const refused = expect.objectContaining({ reason: 'egress_limit' });

describe('limits', () => {
  it('fill the rate of a tenant again over time', () => {
    const bounds = EgressLimits.parse({ requestsPerSecond: 2 });
    const ask = (tenantId?: string) => limits.request(of('b1', tenantId), bounds);
    ask();
    ask();
    expect(() => ask()).toThrow(refused);
    expect(() => ask('t2')).not.toThrow();
    now += 500;
    ask();
    expect(() => ask()).toThrow(refused);
    now += 60_000;
    ask();
    ask();
    expect(() => ask()).toThrow(refused);
  });

  it('lock nobody out when the clock is put back', () => {
    const bounds = EgressLimits.parse({ requestsPerSecond: 2 });
    limits.request(of('b1'), bounds);
    now -= 3_600_000;
    limits.request(of('b1'), bounds);
    now += 1_000;
    expect(() => limits.request(of('b1'), bounds)).not.toThrow();
  });

  it('count the connections of a tenant and of each sandbox, and give them back once', () => {
    const bounds = EgressLimits.parse({ connections: 3, perSandbox: 2 });
    const first = limits.enter(of('b1'), bounds);
    limits.enter(of('b1'), bounds);
    expect(() => limits.enter(of('b1'), bounds)).toThrow(/of a sandbox/);
    limits.enter(of('b2'), bounds);
    expect(() => limits.enter(of('b3'), bounds)).toThrow(/more than 3 connections at once/);
    expect(() => limits.enter(of('b1', 't2'), bounds)).not.toThrow();
    first.leave();
    first.leave();
    limits.enter(of('b3'), bounds);
    expect(() => limits.enter(of('b4'), bounds)).toThrow(refused);
  });

  it('count the bytes of a day', () => {
    const bounds = EgressLimits.parse({ bytesPerDay: 100 });
    const lease = limits.enter(of('b1'), bounds);
    lease.spend(100);
    expect(() => lease.spend(1)).toThrow(refused);
    expect(() => limits.enter(of('b2'), bounds)).toThrow(refused);
    now += 86_400_000;
    lease.spend(50);
    expect(() => limits.enter(of('b2'), bounds)).not.toThrow();
  });
});
