import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { generateKeys, KeyRing } from '@margay/platform';
import { parseKeys, runKeys } from './command';

describe('margay keys', () => {
  let folder: string;
  let now: number;
  const lines: string[] = [];

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'margay-rotate-'));
    await generateKeys(join(folder, 'keys'), ['session', 'tool-executor']);
    now = Date.now();
    lines.length = 0;
  });
  afterEach(() => rm(folder, { recursive: true }));

  const rotate = (sandboxesByKey?: () => Promise<Map<string, number>>, ...more: string[]) =>
    runKeys(parseKeys(['rotate', '--out', folder, '--keys', 'keys', ...more]), {
      write: (line) => lines.push(line),
      sandboxesByKey,
      now: () => (now += 120_000),
    });

  it('replaces the keys in a folder step by step, and says how to go on', async () => {
    const none = () => Promise.resolve(new Map<string, number>());
    const before = await KeyRing.load(join(folder, 'keys'), 'session');
    const codes = [await rotate(none), await rotate(none), await rotate(none), await rotate(none)];
    expect(codes).toEqual([1, 1, 1, 0]);
    expect(lines).toEqual([
      'new keys are made and trusted; run this again in 120 s',
      'the new keys sign; run this again in 120 s',
      'the old keys sign nothing any more; run this again in 120 s',
      'the old keys are not trusted any more; the rotation is finished',
    ]);
    const after = await KeyRing.load(join(folder, 'keys'), 'session');
    expect(after.signingKeyId).not.toBe(before.signingKeyId);
    expect(await readFile(join(folder, 'keys/session.old.pem'), 'utf8')).toBe('');
  });

  it('lets no old key go before somebody has looked for sandboxes', async () => {
    await rotate();
    await rotate();
    await expect(rotate()).rejects.toMatchObject({ reason: 'sandboxes_unknown' });
    expect(await rotate(undefined, '--sandboxes-checked')).toBe(1);
  });

  it('counts sandboxes by the key that they need', async () => {
    const sandboxesByKey = () => Promise.resolve(new Map([['k1', 2]]));
    expect(await runKeys({ kind: 'sandboxes' }, { write: (line) => lines.push(line), sandboxesByKey })).toBe(0);
    expect(lines).toEqual(['{"k1":2}']);
  });

  it.each([
    [[]],
    [['rotate']],
    [['rotate', '--out', 'x']],
    [['rotate', '--out', 'x', '--namespace', 'y', '--keys', 'keys']],
    [['rotate', '--out', 'x', '--keys', 'keys', '--step-seconds', 'soon']],
    [['sandboxes', '--all']],
  ])('is not called with %j', (argv) => {
    expect(() => parseKeys(argv)).toThrow(/Usage: margay.cjs keys rotate/);
  });
});
