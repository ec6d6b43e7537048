import { Load, pickFairly } from './fairness';
import type { RunRow } from './run.repository';

function row(id: string, tenantId: string, principal: string): RunRow {
  const rest = { sessionId: id, c: 1, pool: 'p', state: 'queued' as const, epoch: 1, owner: null };
  return { _id: id, tenantId, principal, ...rest, queuedAtMs: 0, changedAtMs: 0 };
}

/** Order in which queued runs start when nothing ends. */
function order(queued: RunRow[], load = new Load([])): string {
  const left = [...queued];
  const picked: string[] = [];
  while (left.length > 0) {
    const next = pickFairly(left, load);
    left.splice(left.indexOf(next), 1);
    load.add(next.tenantId, next.principal);
    picked.push(next._id);
  }
  return picked.join(' ');
}

describe('the next run to start', () => {
  it('is the oldest where nobody has more than others', () => {
    expect(order([row('a', 't', 'u'), row('b', 't', 'u'), row('c', 't', 'u')])).toBe('a b c');
  });

  it('goes round the tenants, however many one of them has queued first', () => {
    const queued = [row('a1', 'a', 'u'), row('a2', 'a', 'u'), row('a3', 'a', 'u'), row('b1', 'b', 'u')];
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
});
