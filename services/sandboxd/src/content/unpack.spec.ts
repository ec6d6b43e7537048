import { createHash } from 'node:crypto';
import {
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { gzipSync, zstdCompressSync } from 'node:zlib';
import type { ContentOrder, UploadFormat } from '@margay/contracts';
import { zipOf, type ZipEntry } from '@margay/testing';
import { pack, type Header } from 'tar-stream';
import { Content } from './content';

interface TarEntry extends Partial<Header> {
  name: string;
  content?: string | Buffer;
}

async function tarOf(entries: readonly TarEntry[]): Promise<Buffer> {
  const archive = pack();
  for (const { content = '', ...header } of entries) archive.entry(header, content);
  archive.finalize();
  const chunks: Buffer[] = [];
  for await (const chunk of archive) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}

describe('an upload', () => {
  let base: string;

  beforeEach(() => {
    base = mkdtempSync(path.join(tmpdir(), 'margay-unpack-'));
    mkdirSync(path.join(base, 'ws'));
  });
  afterEach(() => rmSync(base, { recursive: true, force: true }));

  const inside = (name: string) => path.join(base, 'ws', name);
  const text = (name: string) => readFileSync(inside(name), 'utf8');

  async function bring(format: UploadFormat, bytes: Buffer, { filename = 'x', maxBytes = 1e9 } = {}) {
    const content = new Content({ root: path.join(base, 'ws'), environment: {}, isBoxed: true });
    const contentId = 'aaaaaaaa';
    for (let offset = 0; offset < bytes.length;) {
      const piece = bytes.subarray(offset, offset + 1_000_000);
      const placed = await content.place({ contentId, offset, totalBytes: bytes.length, content: piece });
      offset = placed.nextOffset;
    }
    const sha256 = createHash('sha256').update(bytes).digest('hex');
    const order: ContentOrder = { kind: 'unpack', format, bytes: bytes.length, sha256, filename };
    const request = { contentId, attempt: 1, orderJson: JSON.stringify(order), replace: false, maxBytes };
    return content.bring({ ...request, timeoutMs: 20_000 }, new AbortController().signal, () => undefined);
  }

  /** Nothing of it is there afterwards, inside or outside. */
  function expectUntouched(): void {
    expect(readdirSync(base)).toEqual(['ws']);
    expect(readdirSync(path.join(base, 'ws'))).toEqual(['.margay']);
    expect(readdirSync(inside('.margay/content'))).toEqual([]);
  }

  const USUAL: TarEntry[] = [
    { name: './', type: 'directory' },
    { name: 'docs/', type: 'directory', mode: 0o2775 },
    { name: 'docs/read me.txt', content: 'read' },
    { name: 'deep/er/run.sh', content: '#!/bin/sh', mode: 0o755 },
    { name: 'link', type: 'symlink', linkname: 'docs/read me.txt' },
    { name: 'deep/up', type: 'symlink', linkname: '../docs' },
    { name: 'same', type: 'link', linkname: 'docs/read me.txt' },
    { name: `${'long/'.repeat(40)}name`, content: 'far down' },
    { name: 'ünï', content: 'accents' },
  ];

  it.each(['tar', 'tar.gz', 'tar.zst'] as const)('is unpacked from %s, with links and programs', async (format) => {
    const plain = await tarOf(USUAL);
    const bytes = { tar: plain, 'tar.gz': gzipSync(plain), 'tar.zst': zstdCompressSync(plain) }[format];
    expect(await bring(format, bytes)).toMatchObject({ status: 'ready' });
    expect([text('link'), text('deep/up/read me.txt'), text('same'), text('ünï')]).toEqual([
      'read',
      'read',
      'read',
      'accents',
    ]);
    expect(lstatSync(inside('deep/er/run.sh')).mode & 0o777).toBe(0o755);
    expect(text(`${'long/'.repeat(40)}name`)).toBe('far down');
    expect(readlinkSync(inside('deep/up'))).toBe('../docs');
  });

  it('is unpacked from zip', async () => {
    const bytes = zipOf([
      { name: 'docs/' },
      { name: 'docs/a.txt', content: 'a' },
      { name: 'run', content: 'x', mode: 0o100755 },
      { name: 'link', content: 'docs/a.txt', mode: 0o120777 },
      { name: 'plain', content: 'of another system', mode: 0 },
    ]);
    expect(await bring('zip', bytes)).toMatchObject({ status: 'ready' });
    expect([text('link'), text('plain')]).toEqual(['a', 'of another system']);
    expect(lstatSync(inside('run')).mode & 0o111).not.toBe(0);
  });

  it('is a single file, under its name alone', async () => {
    expect(await bring('file', Buffer.from('data'), { filename: '../../notes.md' })).toMatchObject({ status: 'ready' });
    expect([text('notes.md'), readdirSync(base)]).toEqual(['data', ['ws']]);
  });

  const HARMLESS: TarEntry = { name: 'harmless', content: 'x' };

  it.each<[string, TarEntry[]]>([
    ['a name with ..', [{ name: '../out', content: 'x' }]],
    ['a name with .. in its middle', [{ name: 'a/../../out', content: 'x' }]],
    ['an absolute name', [{ name: '/tmp/margay-out', content: 'x' }]],
    ['an absolute link', [{ name: 'etc', type: 'symlink', linkname: '/etc' }]],
    ['a link that leads out', [{ name: 'a/up', type: 'symlink', linkname: '../../out' }]],
    [
      'a link that leads out by way of another link',
      [
        { name: 'a/b/down', type: 'symlink', linkname: '../..' },
        { name: 'a/b/up', type: 'symlink', linkname: 'down/../out' },
      ],
    ],
    [
      'a file behind a link',
      [
        { name: 'up', type: 'symlink', linkname: 'docs' },
        { name: 'up/file', content: 'x' },
      ],
    ],
    ['a hard link to what it did not bring', [{ name: 'hard', type: 'link', linkname: 'ws/secret' }]],
    ['a hard link that leads out', [{ name: 'hard', type: 'link', linkname: '../../etc/passwd' }]],
    ['a device', [{ name: 'disk', type: 'block-device', devmajor: 8 }]],
    ['a character device', [{ name: 'null', type: 'character-device', devmajor: 1 }]],
    ['a pipe', [{ name: 'pipe', type: 'fifo' }]],
    ['a setuid program', [{ name: 'su', content: 'x', mode: 0o4755 }]],
    ['a setgid program', [{ name: 'mail', content: 'x', mode: 0o2755 }]],
    ['control characters in a name', [{ name: 'a\u001b[2Jb', content: 'x' }]],
    ['a line break in a name', [{ name: 'a\nb', content: 'x' }]],
    ['a name in the folder that Margay keeps', [{ name: '.margay/content.json', content: '{}' }]],
  ])('is refused with %s, and leaves nothing', async (_, entries) => {
    const end = await bring('tar', await tarOf([HARMLESS, ...entries]));
    expect(end).toMatchObject({
      status: 'failed',
      reason: 'unsafe_archive',
      message: expect.stringMatching(/^[^\p{Cc}]+$/u),
    });
    expectUntouched();
  });

  it.each<[string, ZipEntry]>([
    ['a name with ..', { name: '../out', content: 'x' }],
    ['an absolute name', { name: '/tmp/margay-out', content: 'x' }],
    ['a backslash', { name: '..\\out', content: 'x' }],
    ['a link that leads out', { name: 'up', content: '../out', mode: 0o120777 }],
    ['a device', { name: 'null', mode: 0o020666 }],
    ['a setuid program', { name: 'su', content: 'x', mode: 0o104755 }],
    ['control characters in a name', { name: 'a\u0007b', content: 'x' }],
  ])('is refused as zip with %s', async (_, entry) => {
    const end = await bring('zip', zipOf([{ name: 'harmless', content: 'x' }, entry]));
    expect(end).toMatchObject({ status: 'failed', reason: expect.stringMatching(/^(unsafe|bad)_archive$/) });
    expectUntouched();
  });

  it('is refused as a bomb: by how much it grows, by its size, and by its entries', async () => {
    const zeros = await tarOf([{ name: 'zeros', content: Buffer.alloc(40 * 1024 * 1024) }]);
    for (const [format, bytes] of [
      ['tar.gz', gzipSync(zeros)],
      ['tar.zst', zstdCompressSync(zeros)],
    ] as const)
      expect(await bring(format, bytes)).toMatchObject({
        reason: 'too_large',
        message: expect.stringMatching(/100 times/),
      });
    expect(await bring('tar', zeros, { maxBytes: 50 * 1024 * 1024 })).toMatchObject({ status: 'ready' });
    rmSync(path.join(base, 'ws'), { recursive: true });
    mkdirSync(path.join(base, 'ws'));
    expect(await bring('tar.gz', gzipSync(zeros), { maxBytes: 1_000_000 })).toMatchObject({ reason: 'too_large' });
    expectUntouched();
  });

  it('is refused if it lies about its size, or is none of its kind', async () => {
    const lie = zipOf([{ name: 'a', content: 'much more than it says', claimed: 2 }]);
    expect(await bring('zip', lie)).toMatchObject({ status: 'failed', reason: 'bad_archive' });
    expect(await bring('zip', Buffer.from('no archive'))).toMatchObject({ reason: 'bad_archive' });
    expect(await bring('tar.gz', gzipSync(await tarOf([HARMLESS])).subarray(0, 40))).toMatchObject({
      reason: 'bad_archive',
    });
    expectUntouched();
  });

  it('has to be whole', async () => {
    const content = new Content({ root: path.join(base, 'ws'), environment: {}, isBoxed: true });
    const order: ContentOrder = { kind: 'unpack', format: 'tar', bytes: 5, sha256: 'no', filename: '' };
    const request = { contentId: 'aaaaaaaa', attempt: 1, orderJson: JSON.stringify(order), replace: false };
    const brought = content.bring(
      { ...request, maxBytes: 1e9, timeoutMs: 1_000 },
      new AbortController().signal,
      () => undefined,
    );
    await expect(brought).rejects.toMatchObject({ reason: 'upload_incomplete' });
    expect(existsSync(inside('x'))).toBe(false);
  });
});
