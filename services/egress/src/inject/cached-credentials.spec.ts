import { UnavailableError } from '@margay/errors';
import { MemoryCredentials } from '../egress-fixture';
import { CachedCredentials } from './cached-credentials';

const query = { tenantId: 't1', sessionId: 's1', host: 'git.example', name: 'git/team' };
let source: MemoryCredentials;
let cached: CachedCredentials;
let nowMs: number;

beforeEach(() => {
  source = new MemoryCredentials();
  source.all.set('git/team', { name: 'git/team', value: 'one' });
  nowMs = 1_000;
  cached = new CachedCredentials(source, () => nowMs);
});

describe('cached credentials', () => {
  it('are asked for once in a while, and once at a time', async () => {
    await Promise.all([cached.find(query), cached.find(query)]);
    expect(await cached.find(query)).toMatchObject({ value: 'one' });
    expect(source.queries).toHaveLength(1);
    await cached.find({ ...query, sessionId: 's2' });
    await cached.find({ ...query, tenantId: 't2' });
    await cached.find({ ...query, host: 'other.example' });
    expect(source.queries).toHaveLength(4);
  });

  it('are dead within five seconds of their revocation', async () => {
    await cached.find(query);
    source.all.clear();
    nowMs += 5_000;
    expect(await cached.find(query)).toBeUndefined();
  });

  it('are dead once they expire, also while session does not answer', async () => {
    source.all.set('git/team', { name: 'git/team', value: 'one', expiresAt: new Date(Date.now() + 3_000) });
    const date = jest.spyOn(Date, 'now');
    expect(await cached.find(query)).toMatchObject({ value: 'one' });
    date.mockReturnValue(Date.now() + 3_000);
    expect(await cached.find(query)).toBeUndefined();
    jest.spyOn(source, 'find').mockRejectedValue(new UnavailableError('egress_unavailable', 'Gone.'));
    nowMs += 5_000;
    expect(await cached.find(query)).toBeUndefined();
    date.mockRestore();
  });

  it('are dead at once when their tenant is announced', async () => {
    await cached.find(query);
    source.all.clear();
    cached.forget('t2');
    expect(await cached.find(query)).toMatchObject({ value: 'one' });
    cached.forget('t1');
    expect(await cached.find(query)).toBeUndefined();
  });

  it('serve for a minute while session does not answer, and no longer', async () => {
    await cached.find(query);
    jest.spyOn(source, 'find').mockRejectedValue(new UnavailableError('egress_unavailable', 'Gone.'));
    nowMs += 50_000;
    expect(await cached.find(query)).toMatchObject({ value: 'one' });
    nowMs += 11_000;
    await expect(cached.find(query)).rejects.toMatchObject({ reason: 'egress_unavailable' });
  });
});
