import { createLogger, LeaseRepository } from '@margay/platform';
import { RealStore } from '../spec/real-store';
import { migrate } from './migrate';

const real = new RealStore();
const logger = createLogger({ service: 'spec', level: 'off' });

beforeAll(() => real.start(), 300_000);
afterAll(() => real.stop());
beforeEach(() => real.db.collection('schema').deleteMany({}));

const run = (version: string, waitMs = 0) => migrate({ db: real.db, version, instance: 'one', logger, waitMs });
const prepared = async () => (await real.db.collection('schema').findOne({}))?.['version'] as unknown;

describe('a migration', () => {
  it('makes the indexes that a replica needs, and may be repeated', async () => {
    await run('0.1.0');
    await run('0.1.0');
    const names = (await real.db.collection('commits').indexes()).map(({ name }) => name);
    expect(names).toEqual(expect.arrayContaining(['commitIds_v1', 'ts0_v1', 'effectsDueAt_v1', 'blobs_v1']));
    expect(await prepared()).toBe('0.1.0');
  });

  it('goes one minor version forwards, or back without forgetting the newer one', async () => {
    for (const version of ['0.8.3', '0.9.0', '0.9.7', '0.10.0', '1.0.0', '1.1.0']) await run(version);
    await run('1.0.4');
    expect(await prepared()).toBe('1.1.0');
  });

  it.each([
    ['0.1.0', '0.3.0'],
    ['0.3.0', '0.1.0'],
    ['0.9.0', '1.1.0'],
    ['1.0.0', '3.0.0'],
  ])('refuses to go from %s to %s, and changes nothing', async (from, to) => {
    await run(from);
    await expect(run(to)).rejects.toMatchObject({ reason: 'version_jump' });
    expect(await prepared()).toBe(from);
  });

  it('waits for another one that is under way, and gives up in words', async () => {
    const other = new LeaseRepository(real.db.collection('leases'), 'other');
    await other.hold('migrate', 60_000);
    await expect(run('0.1.0')).rejects.toMatchObject({ reason: 'migrating' });
    setTimeout(() => void other.release('migrate'), 100);
    await run('0.1.0', 60_000);
    expect(await prepared()).toBe('0.1.0');
  });
});
