import { UnavailableError } from '@margay/errors';
import { checkMachine, diskFinding } from './check-machine';
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

describe('parseDoctor', () => {
  it('takes its options and shows its usage for others', () => {
    expect(parseDoctor([])).toEqual({ isQuick: false, asJson: false });
    expect(parseDoctor(['--quick', '--json'])).toEqual({ isQuick: true, asJson: true });
    expect(() => parseDoctor(['--slow'])).toThrow(/Usage: margay.cjs doctor/);
  });
});
