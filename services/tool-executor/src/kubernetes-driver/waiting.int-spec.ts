import { ClusterFixture } from '../spec/cluster-fixture';
import type { WaitingRepository } from './waiting.repository';

let fixture: ClusterFixture;
let waiting: WaitingRepository;
beforeAll(async () => {
  fixture = await new ClusterFixture().start();
  waiting = (await fixture.context()).waiting;
}, 600_000);
afterAll(() => fixture.close());
afterEach(() => jest.restoreAllMocks());

const at = (ms: number) => jest.spyOn(Date, 'now').mockReturnValue(ms);

describe('the queue of a tenant at its limit', () => {
  it('serves whoever came first, each tenant by itself, and forgets those that went away', async () => {
    const start = Date.now();
    at(start);
    expect(await waiting.join('t1', 'a')).toBe(1);
    at(start + 1);
    expect(await waiting.join('t1', 'b')).toBe(2);
    expect(await waiting.join('t2', 'c')).toBe(1);
    at(start + 1_000);
    expect([await waiting.join('t1', 'b'), await waiting.join('t1', 'a')]).toEqual([2, 1]);
    expect([await waiting.count('t1', 'new'), await waiting.count('t1', 'a')]).toEqual([2, 1]);
    await waiting.leave('t1', 'a');
    expect(await waiting.join('t1', 'b')).toBe(1);
    at(start + 5_000);
    expect(await waiting.join('t1', 'd')).toBe(2);
    // Nobody has heard of b for more than six seconds.
    at(start + 8_000);
    expect(await waiting.join('t1', 'd')).toBe(1);
    expect(await waiting.join('t1', 'b')).toBe(2);
  });
});
