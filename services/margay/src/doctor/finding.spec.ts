import { UnavailableError } from '@margay/errors';
import { checkMachine, diskFinding } from './check-machine';
import { checkGeneration } from './check-store';
import { parseDoctor } from './doctor';
import { exitCodeOf, fault, ok, reasonOf, warning } from './finding';

const GIB = 1024 ** 3;

describe('findings of the doctor', () => {
  it('end in the code of the worst', () => {
    const [well, warned, wrong] = [ok('a', 'b'), warning('a', 'b', 'c'), fault('a', 'b', 'c')];
    expect([exitCodeOf([well]), exitCodeOf([well, warned]), exitCodeOf([wrong, warned])]).toEqual([0, 1, 2]);
  });

  it('quote our own errors, and of others the name alone', () => {
    expect(reasonOf(new UnavailableError('x', 'The store is away.'))).toBe('The store is away.');
    expect(reasonOf(Object.assign(new Error('at mongodb://u:p@h'), { code: 'ECONNREFUSED' }))).toBe('Error ECONNREFUSED'); // prettier-ignore
  });

  it.each([
    [100 * GIB, 0.5, 'ok'],
    [100 * GIB, 0.1, 'ok'],
    [1.5 * GIB, 0.5, 'ok'],
    [1.5 * GIB, 0.1, 'warning'],
    [GIB / 8, 0.5, 'fault'],
    [100 * GIB, 0.01, 'fault'],
  ])('judge %d bytes and a share of %d of a disk', (freeBytes, share, status) => {
    expect(diskFinding('/', freeBytes, share).status).toBe(status);
  });

  it('name a Node without zstd, and a folder that is missing', async () => {
    expect(await checkMachine(['/nowhere'], '20.19.0')).toMatchObject([
      { check: 'machine.node', status: 'warning' },
      { check: 'machine.disk', status: 'fault' },
    ]);
  });
});

describe('the generation of the store', () => {
  const clientThat = (listDatabases: () => Promise<object>) => ({ db: () => ({ admin: () => ({ listDatabases }) }) }) as never; // prettier-ignore

  it('is known by the name of the database alone where the user may list no others', async () => {
    const refusing = clientThat(() => Promise.reject(Object.assign(new Error('not authorized'), { code: 13 })));
    expect(await checkGeneration(refusing, 'margay_g2')).toMatchObject({ status: 'ok', detail: expect.stringContaining('generation 2') }); // prettier-ignore
    expect(await checkGeneration(refusing, 'margay')).toMatchObject({ status: 'warning' });
  });

  it('minds databases of the same name alone', async () => {
    const databases = ['other_g9', 'margay_g1', 'margay_gx', 'margay_g0'].map((name) => ({ name }));
    const listing = clientThat(async () => ({ databases }));
    expect(await checkGeneration(listing, 'margay_g1')).toMatchObject({ status: 'ok' });
    expect(await checkGeneration(listing, 'margay_g0')).toMatchObject({ status: 'warning', detail: 'generation 1 exists, but 0 is in use' }); // prettier-ignore
  });
});

describe('parseDoctor', () => {
  it('takes its options and shows its usage for others', () => {
    expect(parseDoctor([])).toEqual({ isQuick: false, isCluster: false, asJson: false });
    expect(parseDoctor(['--quick', '--cluster', '--json'])).toEqual({ isQuick: true, isCluster: true, asJson: true });
    expect(parseDoctor(['--url', 'https://margay.example.com'])).toMatchObject({ url: 'https://margay.example.com' });
    expect(() => parseDoctor(['--url', 'here'])).toThrow(/"here" is no URL/);
    expect(() => parseDoctor(['--slow'])).toThrow(/Usage: margay.cjs doctor/);
  });
});
