import { createHash } from 'node:crypto';
import {
  chmodSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Attachments } from './attachments';

const WHOLE = Buffer.from('abcdefgh');
const sha256 = createHash('sha256').update(WHOLE).digest('hex');

let base: string;
let folder: string;
let attachments: Attachments;

beforeEach(() => {
  base = mkdtempSync(path.join(tmpdir(), 'margay-attachments-'));
  folder = path.join(base, 'attachments');
  attachments = new Attachments(folder);
});
afterEach(() => {
  if (existsSync(folder)) chmodSync(folder, 0o755);
  rmSync(base, { recursive: true, force: true });
});

const place = (offset: number, content: string, more: { name?: string; sha256?: string; totalBytes?: number } = {}) =>
  attachments.place({ name: 'a.txt', sha256, totalBytes: 8, offset, content: Buffer.from(content), ...more });

describe('an attached file', () => {
  it('comes in pieces, and is there, read-only, only when it is whole', async () => {
    expect(await place(0, '')).toEqual({ done: false, nextOffset: 0 });
    expect(await place(0, 'abcde')).toEqual({ done: false, nextOffset: 5 });
    expect(existsSync(path.join(folder, 'a.txt'))).toBe(false);
    expect(await place(5, 'fgh')).toEqual({ done: true, nextOffset: 8 });
    expect(readFileSync(path.join(folder, 'a.txt'), 'utf8')).toBe('abcdefgh');
    expect([statSync(folder).mode & 0o777, statSync(path.join(folder, 'a.txt')).mode & 0o777]).toEqual([0o555, 0o444]);
    expect(readdirSync(folder)).toEqual(['a.txt']);
  });

  it('takes each piece once, whoever sends it again or out of turn', async () => {
    await place(0, 'abcde');
    expect(await place(0, 'abcde')).toEqual({ done: false, nextOffset: 5 });
    expect(await place(7, 'h')).toEqual({ done: false, nextOffset: 5 });
    expect(await Promise.all([place(5, 'fgh'), place(5, 'fgh')])).toEqual([
      { done: true, nextOffset: 8 },
      { done: true, nextOffset: 8 },
    ]);
  });

  it('is known again by another life of the daemon, and written anew where somebody changed it', async () => {
    await place(0, 'abcdefgh');
    attachments = new Attachments(folder);
    expect(await place(0, '')).toEqual({ done: true, nextOffset: 8 });
    chmodSync(folder, 0o755);
    rmSync(path.join(folder, 'a.txt'));
    writeFileSync(path.join(folder, 'a.txt'), 'ABCDEFGH');
    attachments = new Attachments(folder);
    expect(await place(0, '')).toEqual({ done: false, nextOffset: 0 });
    expect(await place(0, 'abcdefgh')).toMatchObject({ done: true });
    expect(readFileSync(path.join(folder, 'a.txt'), 'utf8')).toBe('abcdefgh');
  });

  it('begins anew where the bytes are not those of its hash', async () => {
    expect(await place(0, 'abcdefgX')).toEqual({ done: false, nextOffset: 0 });
    expect(await place(0, 'abcdefgh')).toMatchObject({ done: true });
  });

  it('may be empty', async () => {
    const empty = { name: 'e.txt', totalBytes: 0, sha256: createHash('sha256').digest('hex') };
    expect(await place(0, '', empty)).toEqual({ done: true, nextOffset: 0 });
    expect(readFileSync(path.join(folder, 'e.txt'), 'utf8')).toBe('');
  });

  it.each([{ name: '../a' }, { name: '..' }, { name: '' }, { sha256: 'x' }, { totalBytes: 1e9 }])(
    'is refused: %j',
    async (more) => {
      await expect(async () => place(0, '', more)).rejects.toMatchObject({ reason: 'bad_attachment' });
    },
  );

  it('says where there is no place for it', async () => {
    writeFileSync(folder, 'a file');
    await expect(place(0, 'a')).rejects.toMatchObject({ reason: 'attachments_unavailable' });
    rmSync(folder);
  });
});
