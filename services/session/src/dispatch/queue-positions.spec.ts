import { emptyHead, type Head, type HeadRun } from '@margay/log';
import { createLogger } from '@margay/platform';
import { QueuePositions } from './queue-positions';
import type { RunRow } from './run.repository';

let order: string[];
let orders: number;
let nowMs: number;
let isAway: boolean;
let positions: QueuePositions;

beforeEach(() => {
  order = ['a', 'b'];
  orders = 0;
  isAway = false;
  nowMs = 100_000;
  positions = new QueuePositions({
    queue: {
      order: async () => {
        orders += 1;
        if (isAway) throw new Error('the store is away');
        return order.map((_id) => ({ _id, sessionId: `session of ${_id}` }) as RunRow);
      },
    },
    runs: { ahead: async () => 4_711 },
    pools: ['p'],
    logger: createLogger({ level: 'off' }),
    now: () => nowMs,
  });
});

function head(id: string, state: HeadRun['state'] = 'queued', sinceMs = 90_000): Head {
  const run = { id, no: 1, state, owner: null, pool: 'p', acceptedTs: 1, principal: 'u', consumedTo: 0 };
  return { ...emptyHead('s'), ts: sinceMs * 1_000, run };
}

describe('the position of a run', () => {
  it('is its place in the order of starting, counted from 1', async () => {
    expect([await positions.ofHead(head('a')), await positions.ofHead(head('b'))]).toEqual([1, 2]);
  });

  it('is none while the run runs or waits for somebody, without a run, or in its first second', async () => {
    const heads = [head('a', 'running'), head('a', 'waiting'), emptyHead('s'), head('a', 'queued', nowMs - 999)];
    expect(await Promise.all(heads.map((one) => positions.ofHead(one)))).toEqual(heads.map(() => undefined));
    expect(orders).toBe(0);
  });

  it('costs one look at the queue a second, however many ask', async () => {
    await Promise.all(Array.from({ length: 500 }, () => positions.ofHead(head('b'))));
    nowMs += 999;
    await positions.ofHead(head('a'));
    expect(orders).toBe(1);
    order = ['b'];
    nowMs += 1;
    expect(await positions.ofHead(head('b'))).toBe(1);
    expect(await positions.ofHead(head('a'))).toBeUndefined();
    expect(orders).toBe(2);
  });

  it('is counted by age beyond the first thousand', async () => {
    order = Array.from({ length: 1_000 }, (_, i) => `other${i}`);
    expect(await positions.ofHead(head('a'))).toBe(4_712);
  });

  it('is found by session for lists', async () => {
    expect(await positions.ofSessions()).toEqual(new Map([['session of a', 1], ['session of b', 2]])); // prettier-ignore
  });

  it('is left out while the queue can not be read, and asked for again at once', async () => {
    isAway = true;
    expect(await positions.ofHead(head('a'))).toBeUndefined();
    isAway = false;
    expect(await positions.ofHead(head('a'))).toBe(1);
  });
});
