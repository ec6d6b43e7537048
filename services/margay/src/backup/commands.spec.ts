import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { findManifest, type BackupCheck, type Manifest, type Restored } from '@margay/session';
import { parseBackup, parseRestore, runBackup, runRestore, type BackupContext } from './commands';

let root: string;
let lines: string[];
let closed: number;
let problems: string[];
let restored: Partial<Restored>;
let now: Date;

beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), 'margay-folders-'));
  [lines, closed, problems, restored] = [[], 0, [], {}];
  now = new Date('2030-01-02T03:04:05.678Z');
});
afterEach(() => rm(root, { recursive: true }));

async function put(folder: string, finishedAt?: string): Promise<Manifest> {
  const manifest: Manifest = { format: 1, id: 'x', database: 'margay_g0', startedAt: 'then', documents: {}, parts: [], ...(finishedAt && { finishedAt }) }; // prettier-ignore
  await mkdir(folder, { recursive: true });
  await writeFile(join(folder, 'backup.json'), JSON.stringify(manifest));
  return manifest;
}

const checked = (): BackupCheck => ({ sessions: 2, commits: 9, blobs: 1, problems });
const context = (): BackupContext => ({
  open: async () => ({
    backup: async (folder) => ({ manifest: await put(folder, 'now'), check: checked() }),
    restore: async (folder, quietMs) => {
      lines.push(`restore ${basename(folder)} ${quietMs}`);
      return { database: 'margay_g1', sessions: 2, parked: 1, unreadable: [], faults: [], ...restored };
    },
    close: async () => void (closed += 1),
  }),
  findManifest,
  checkBackup: async () => checked(),
  write: (line) => lines.push(line),
  now: () => now,
});

const backup = (...argv: string[]) => runBackup(parseBackup(['--to', root, ...argv]), context());

describe('the command backup', () => {
  it('writes each backup into a folder of its own and keeps so many of them', async () => {
    for (let day = 1; day <= 4; day++) {
      now = new Date(Date.UTC(2030, 0, day, 1, 2, 3));
      expect(await backup('--keep', '2')).toBe(0);
    }
    expect((await readdir(root)).sort()).toEqual(['20300103T010203Z', '20300104T010203Z']);
    expect(closed).toBe(4);
  });

  it('goes on with one that was broken off', async () => {
    await put(join(root, '20290101T000000Z'));
    expect(await backup()).toBe(0);
    expect(await readdir(root)).toEqual(['20290101T000000Z']);
    expect(await backup()).toBe(0);
    expect(await readdir(root)).toContain('20300102T030405Z');
  });

  it('removes no older one where the new one is not in order, and ends with 1', async () => {
    await put(join(root, '20290101T000000Z'), 'then');
    problems = ['session x: commit 3 is missing'];
    expect(await backup('--keep', '1')).toBe(1);
    expect(await readdir(root)).toHaveLength(2);
    expect(lines).toEqual(['session x: commit 3 is missing', expect.stringContaining('not in order')]);
  });

  it('checks the newest finished one', async () => {
    await put(join(root, '20290101T000000Z'), 'then');
    await put(join(root, '20290102T000000Z'));
    expect(await runBackup(parseBackup(['--check', root]), context())).toBe(0);
    expect(lines).toEqual([`${root}/20290101T000000Z: 2 sessions, 9 commits, 1 blobs, all in order`]);
  });

  it.each([[[]], [['--to']], [['--to', 'a', '--check', 'b']], [['--to', 'a', '--keep', '0']], [['--into', 'a']]])(
    'shows its usage for %j',
    (argv) => expect(() => parseBackup(argv)).toThrow('Usage: margay.cjs backup'),
  );
});

describe('the command restore', () => {
  const restore = (...argv: string[]) => runRestore(parseRestore(['--from', root, ...argv]), context());

  it('takes the newest finished backup and says how to go on', async () => {
    await put(join(root, '20290101T000000Z'), 'then');
    expect(await restore('--quiet-seconds', '20')).toBe(0);
    expect(lines).toEqual([
      'restore 20290101T000000Z 20000',
      '2 sessions restored into margay_g1; 1 runs wait for review',
      'set MARGAY_MONGODB_DATABASE=margay_g1 for every service, and start the platform',
    ]);
  });

  it('ends with 1 where a log is not in order, and says which', async () => {
    await put(root, 'then');
    restored = { faults: [{ sessionId: 's', commits: 1, headHash: '', fault: { c: 2, problem: 'gone' } }] };
    expect(await restore()).toBe(1);
    expect(lines).toContain('session s: commit 2 is bad: gone');
  });

  it('needs a backup, and instances that are silent for ten seconds at least', async () => {
    await expect(restore()).rejects.toMatchObject({ reason: 'backup_missing' });
    expect(() => parseRestore(['--from', root, '--quiet-seconds', '1'])).toThrow(/from 10 on/);
    expect(() => parseRestore([])).toThrow('Usage: margay.cjs backup');
  });
});
