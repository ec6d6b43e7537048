import { FairQueue, Load, type TenantLimit } from './fairness';
import type { RunRow } from './run.repository';

const uncapped: TenantLimit = { weight: 10, maxRunning: Infinity };

function row(id: string, tenantId: string, principal: string): RunRow {
  const rest = { sessionId: id, c: 1, pool: 'p', state: 'queued' as const, epoch: 1, owner: null };
  return { _id: id, tenantId, principal, ...rest, queuedAtMs: 0, changedAtMs: 0, dueAtMs: null, isIsolated: false };
}

const many = (count: number, tenantId: string, principal: string): RunRow[] =>
  Array.from({ length: count }, (_, i) => row(`${tenantId}${i + 1}`, tenantId, principal));

/** Order in which queued runs start when nothing ends. */
function order(queued: RunRow[], load = new Load([]), limits: Record<string, Partial<TenantLimit>> = {}): string {
  const queue = new FairQueue(queued, load, (tenantId) => ({ ...uncapped, ...limits[tenantId] }));
  const picked: string[] = [];
  for (let next = queue.next(); next; next = queue.next()) picked.push(next._id);
  return picked.join(' ');
}

describe('the next run to start', () => {
  it('is the oldest where nobody has more than others', () => {
    expect(order([row('a', 't', 'u'), row('b', 't', 'u'), row('c', 't', 'u')])).toBe('a b c');
  });

  it('goes round the tenants, however many one of them has queued first', () => {
    const queued = [...many(3, 'a', 'u'), row('b1', 'b', 'u')];
    expect(order(queued)).toBe('a1 b1 a2 a3');
  });

  it('goes round the principals of a tenant', () => {
    const queued = [row('u1', 't', 'u'), row('u2', 't', 'u'), row('v1', 't', 'v')];
    expect(order(queued)).toBe('u1 v1 u2');
  });

  it('counts what runs already', () => {
    const load = new Load([{ tenantId: 'a', principal: 'u', runs: 2 }]);
    const queued = [row('a1', 'a', 'u'), row('b1', 'b', 'v'), row('b2', 'b', 'v'), row('b3', 'b', 'v')];
    expect(order(queued, load)).toBe('b1 b2 a1 b3');
  });

  it('tells principals of one name in two tenants apart', () => {
    const load = new Load([{ tenantId: 'a', principal: 'svc:ci', runs: 1 }]);
    load.add('b', 'other');
    expect(order([row('b1', 'b', 'x'), row('b2', 'b', 'svc:ci')], load)).toBe('b1 b2');
    expect(load.ofPrincipal('b', 'svc:ci')).toBe(1);
  });

  it('is given by weight: twice the weight, twice the runs', () => {
    const queued = [...many(4, 'a', 'u'), ...many(4, 'b', 'u')];
    expect(order(queued, undefined, { b: { weight: 20 } })).toBe('a1 b1 b2 a2 b3 b4 a3 a4');
  });

  it('is of no tenant at its cap, whatever its share', () => {
    const queued = [...many(3, 'a', 'u'), ...many(3, 'b', 'u')];
    expect(order(queued, undefined, { a: { maxRunning: 1, weight: 100 } })).toBe('a1 b1 b2 b3');
  });

  it('is none where every tenant is at its cap; the queue stays', () => {
    const load = new Load([{ tenantId: 'a', principal: 'u', runs: 2 }]);
    const queue = new FairQueue(many(2, 'a', 'u'), load, () => ({ weight: 10, maxRunning: 2 }));
    expect(queue.next()).toBeUndefined();
    expect(queue.left).toEqual([{ tenantId: 'a', isBelowCap: false }]);
  });
});

/**
 * Pain 33. Slots serve runs of one length each; both tenants have everything queued at time 0.
 * @returns when each tenant's last run ended, in lengths of a run
 */
function lastEnds(queued: RunRow[], slots: number): Map<string, number> {
  const ends = new Map<string, number>();
  const left = [...queued];
  const running: { row: RunRow; endsAt: number }[] = [];
  for (let now = 0; left.length > 0 || running.length > 0; now += 1) {
    for (let i = running.length - 1; i >= 0; i--) if ((running[i]?.endsAt ?? 0) <= now) running.splice(i, 1);
    const counted = running.map(({ row: { tenantId, principal } }) => ({ tenantId, principal, runs: 1 }));
    const queue = new FairQueue(left, new Load(counted), () => uncapped);
    while (running.length < slots) {
      const next = queue.next();
      if (!next) break;
      left.splice(left.indexOf(next), 1);
      running.push({ row: next, endsAt: now + 1 });
      ends.set(next.tenantId, now + 1);
    }
  }
  return ends;
}

it.each([
  [1, 4],
  [4, 4],
  [40, 10],
])(
  'lets a tenant with %i runs wait at most twice its solo time behind 1,000 runs of another, on %i slots',
  (b, slots) => {
    const own = many(b, 'b', 'svc:ci');
    const solo = lastEnds(own, slots).get('b') ?? 0;
    const beside = lastEnds([...many(1_000, 'a', 'svc:ci'), ...own], slots).get('b') ?? 0;
    expect(beside).toBeLessThanOrEqual(2 * solo);
  },
);
