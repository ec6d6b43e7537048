import { mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { UnavailableError } from '@margay/errors';
import { ok } from '../doctor/finding';
import { parseSupportBundle, writeSupportBundle, type BundleContext } from './command';

let folder: string;
let lines: string[];

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'margay-bundle-'));
  lines = [];
});
afterEach(() => rm(folder, { recursive: true }));

const context = (overrides: Partial<BundleContext> = {}): BundleContext => ({
  version: '1.2.3',
  environment: { MARGAY_MASTER_TOKEN: 'hunter2', PATH: '/bin', OTEL_SDK_DISABLED: '1' },
  examine: async () => [ok('store.reached', 'version 8')],
  describeStore: async () => ({ documents: { commits: 7 } }),
  write: (line) => lines.push(line),
  ...overrides,
});

async function contents(to: string): Promise<Record<string, string>> {
  const names = await readdir(to);
  return Object.fromEntries(await Promise.all(names.map(async (name) => [name, await readFile(join(to, name), 'utf8')] as const))); // prettier-ignore
}

describe('the command support-bundle', () => {
  it('holds findings, versions, counts and ends of logs, for its owner alone', async () => {
    const log = join(folder, 'session.log');
    await writeFile(log, `${'first line\n'.repeat(600_000)}{"msg":"last","apiKey":"abc"}\n`);
    const to = join(folder, 'bundle');
    await writeSupportBundle({ to, metrics: ['http://127.0.0.1:1'], logs: [log] }, context());
    const files = await contents(to);
    expect(Object.keys(files).sort()).toEqual(['about.json', 'doctor.json', 'log-1-session.log', 'metrics-1.txt', 'store.json']); // prettier-ignore
    expect(JSON.parse(files['about.json'] ?? '')).toMatchObject({ version: '1.2.3', settings: ['MARGAY_MASTER_TOKEN', 'OTEL_SDK_DISABLED'] }); // prettier-ignore
    expect(files['log-1-session.log']?.length).toBeLessThanOrEqual(5 * 1024 * 1024);
    expect(files['log-1-session.log']).toMatch(/^first line\n/);
    expect(files['log-1-session.log']).toMatch(/"apiKey":"\[redacted\]"}\n$/);
    expect(JSON.stringify(files)).not.toContain('hunter2');
    expect((await stat(join(to, 'store.json'))).mode & 0o077).toBe(0);
    expect(lines).toEqual([expect.stringContaining('5 files')]);
  });

  it('names what it could not have, and goes on', async () => {
    const to = join(folder, 'bundle');
    const describeStore = () => Promise.reject(new UnavailableError('store_unavailable', 'The store is away.'));
    await writeSupportBundle({ to, metrics: ['http://127.0.0.1:1'], logs: ['/nowhere.log'] }, context({ describeStore })); // prettier-ignore
    const files = await contents(to);
    expect(files['store.json']).toBe('could not be had: The store is away.\n');
    expect(files['metrics-1.txt']).toContain('could not be had');
    expect(files['log-1-nowhere.log']).toBe('could not be had: Error ENOENT\n');
    expect(files['doctor.json']).toContain('store.reached');
  });

  it('goes into no folder that holds something', async () => {
    await writeFile(join(folder, 'a'), '');
    await expect(writeSupportBundle({ to: folder, metrics: [], logs: [] }, context())).rejects.toMatchObject({ reason: 'not_empty' }); // prettier-ignore
  });

  it('takes several addresses and files', () => {
    const argv = ['--to', 'x', '--metrics', 'a', '--metrics', 'b', '--log', 'c'];
    expect(parseSupportBundle(argv)).toEqual({ to: 'x', metrics: ['a', 'b'], logs: ['c'] });
    for (const wrong of [[], ['--into', 'x'], ['x']])
      expect(() => parseSupportBundle(wrong)).toThrow(/Usage: margay.cjs support-bundle/);
  });
});
