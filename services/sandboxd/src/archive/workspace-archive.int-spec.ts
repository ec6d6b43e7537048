import { createHash, randomBytes } from 'node:crypto';
import {
  chmodSync,
  closeSync,
  existsSync,
  ftruncateSync,
  linkSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { zstdCompressSync } from 'node:zlib';
import type { sandboxdPb } from '@margay/contracts';
import { pack, type Header } from 'tar-stream';
import { WorkspaceArchive } from './workspace-archive';

interface Taken {
  manifest: sandboxdPb.ArchiveManifest;
  bytes: Buffer;
}

let base: string;
let spaces = 0;
beforeAll(() => {
  base = mkdtempSync(path.join(tmpdir(), 'margay-archive-'));
});
afterAll(() => rmSync(base, { recursive: true, force: true }));

async function space(): Promise<{ root: string; archive: WorkspaceArchive; reopen: () => Promise<WorkspaceArchive> }> {
  spaces += 1;
  const [root, state] = ['ws', 'state'].map((name) => path.join(base, `${spaces}`, name)) as [string, string];
  for (const folder of [root, state]) mkdirSync(folder, { recursive: true });
  const reopen = () => WorkspaceArchive.open(root, state);
  return { root, archive: await reopen(), reopen };
}

async function take(
  archive: WorkspaceArchive,
  more: Partial<sandboxdPb.SnapshotRequest> & { n: number },
): Promise<Taken> {
  const chunks: Uint8Array[] = [];
  for await (const { message } of archive.snapshot({
    base: 0,
    baseSha256: '',
    excludes: [],
    maxBytes: 0,
    last: false,
    full: false,
    ...more,
  })) {
    if (message?.$case === 'chunk') chunks.push(message.value);
    if (message?.$case === 'manifest') return { manifest: message.value, bytes: Buffer.concat(chunks) };
  }
  throw new Error('it ended without a manifest');
}

async function* sending(chain: readonly Taken[], more: Partial<sandboxdPb.RestoreOpen> = {}) {
  const n = chain.at(-1)?.manifest.n ?? 0;
  const messages: sandboxdPb.RestoreRequest['message'][] = [
    { $case: 'open', value: { n, sha256: '', maxBytes: 0, force: false, ...more } },
  ];
  for (const { manifest, bytes } of chain) {
    messages.push({ $case: 'archive', value: manifest });
    for (let at = 0; at < bytes.length; at += 100_000)
      messages.push({ $case: 'chunk', value: bytes.subarray(at, at + 100_000) });
  }
  for (const message of messages) yield { message };
}

/** Everything that is to be kept: names as bytes, kinds, modes, times to the millisecond, contents. */
function seen(root: string, folder = Buffer.from(root)): Record<string, string> {
  const found: Record<string, string> = {};
  for (const name of readdirSync(folder, { encoding: 'buffer' })) {
    const place = Buffer.concat([folder, Buffer.from('/'), name]);
    const facts = lstatSync(place);
    const key = place.subarray(root.length + 1).toString('latin1');
    const mode = (facts.mode & 0o7777).toString(8);
    if (facts.isSymbolicLink()) found[key] = `link ${readlinkSync(place, { encoding: 'buffer' }).toString('latin1')}`;
    else if (facts.isDirectory()) {
      found[key] = `folder ${mode} ${Math.round(facts.mtimeMs)}`;
      chmodSync(place, 0o700);
      Object.assign(found, seen(root, place));
      chmodSync(place, facts.mode & 0o7777);
    } else if (facts.isFile()) {
      chmodSync(place, 0o600);
      const hash = createHash('sha256').update(readFileSync(place)).digest('hex');
      chmodSync(place, facts.mode & 0o7777);
      found[key] = `file ${mode} ${Math.round(facts.mtimeMs)} ${facts.size} ${hash}`;
    } else found[key] = 'other';
  }
  return found;
}

/** As somebody makes it who means harm. */
async function forged(entries: (Partial<Header> & { name: string; content?: string })[], sure = {}): Promise<Taken> {
  const archive = pack();
  for (const { content, ...header } of entries) archive.entry(header, content ?? '');
  archive.finalize();
  const chunks: Uint8Array[] = [];
  for await (const chunk of archive as AsyncIterable<Uint8Array>) chunks.push(chunk);
  const bytes = zstdCompressSync(Buffer.concat(chunks));
  const sha256 = createHash('sha256').update(bytes).digest('hex');
  const facts = { n: 1, base: 0, entries: entries.length, deleted: [], bytes: bytes.length, sha256 };
  return { bytes, manifest: { ...facts, revision: '', unchanged: false, ...sure } };
}

describe('the archive of a workspace', () => {
  it('is a full one where its base is another archive of that number, made at the same time', async () => {
    const { root, archive } = await space();
    writeFileSync(path.join(root, 'a'), 'one');
    const lost = await take(archive, { n: 1 });
    writeFileSync(path.join(root, 'b'), 'two');

    const after = await take(archive, { n: 2, base: 1, baseSha256: '0'.repeat(64) });
    expect([after.manifest.base, after.manifest.entries]).toEqual([0, 2]);
    writeFileSync(path.join(root, 'c'), 'three');
    const next = await take(archive, { n: 3, base: 2, baseSha256: after.manifest.sha256 });
    expect([next.manifest.base, next.manifest.entries]).toEqual([2, 1]);

    const back = await archive.restore(sending([lost], { sha256: lost.manifest.sha256 }));
    expect(back.hadIt).toBe(false);
    expect(await archive.restore(sending([lost], { sha256: lost.manifest.sha256 }))).toMatchObject({ hadIt: true });
    expect(await archive.restore(sending([lost], { sha256: '0'.repeat(64) }))).toMatchObject({ hadIt: false });
  });

  it('brings odd names, modes, links and times back as they were', async () => {
    const { root, archive } = await space();
    const names = [
      'plain',
      ' leading',
      'line\nbreak',
      'tab\t',
      '-rf',
      'ünï — 名前',
      'a"b\'c\\d',
      '.hidden',
      'x'.repeat(255),
    ];
    for (const name of names) writeFileSync(path.join(root, name), `content of ${name}`);
    writeFileSync(Buffer.concat([Buffer.from(`${root}/`), Buffer.from([0x66, 0xff, 0xfe, 0x80])]), 'no utf-8');
    const deep = path.join(root, ...Array.from({ length: 12 }, (_, at) => `level-${at}-${'d'.repeat(20)}`));
    mkdirSync(deep, { recursive: true });
    writeFileSync(path.join(deep, 'end'), 'deep');
    writeFileSync(path.join(root, 'run.sh'), '#!/bin/sh', { mode: 0o755 });
    writeFileSync(path.join(root, 'closed'), 'nobody reads me', { mode: 0o000 });
    mkdirSync(path.join(root, 'locked'));
    writeFileSync(path.join(root, 'locked', 'inside'), 'x', { mode: 0o400 });
    symlinkSync('plain', path.join(root, 'to-plain'));
    symlinkSync('/nowhere/at/all', path.join(root, 'dangling'));
    symlinkSync('../../etc', path.join(root, 'outward'));
    linkSync(path.join(root, 'plain'), path.join(root, 'twin'));
    utimesSync(path.join(root, 'plain'), 1_000_000.125, 1_000_000.125);
    utimesSync(path.join(root, 'locked'), 2_000_000, 2_000_000);
    chmodSync(path.join(root, 'locked'), 0o500);
    const before = seen(root);
    const full = await take(archive, { n: 1 });
    expect(full.manifest).toMatchObject({
      n: 1,
      base: 0,
      bytes: full.bytes.length,
      entries: Object.keys(before).length,
    });

    const other = await space();
    writeFileSync(path.join(other.root, 'was here'), 'old');
    expect(await other.archive.restore(sending([full]))).toEqual({ entries: full.manifest.entries, hadIt: false });
    expect(seen(other.root)).toEqual(before);
    expect(statSync(path.join(other.root, 'twin')).ino).toBe(statSync(path.join(other.root, 'plain')).ino);
    for (const folder of [root, other.root]) chmodSync(path.join(folder, 'locked'), 0o700);
  });

  it('leaves out sockets, pipes and what is excluded', async () => {
    const { root, archive } = await space();
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(path.join(root, 'socket'), resolve));
    for (const name of ['kept', 'cache/a', 'src/cache/b']) {
      mkdirSync(path.dirname(path.join(root, name)), { recursive: true });
      writeFileSync(path.join(root, name), name);
    }
    const { manifest } = await take(archive, { n: 1, excludes: ['cache'] });
    server.close();
    expect(manifest.entries).toBe(['kept', 'src', 'src/cache', 'src/cache/b'].length);
  });

  it('keeps large files whole, and their holes', async () => {
    const { root, archive } = await space();
    const file = openSync(path.join(root, 'sparse'), 'w');
    writeSync(file, 'head', 0);
    writeSync(file, 'middle', 150_000_000);
    ftruncateSync(file, 300_000_000);
    closeSync(file);
    writeFileSync(path.join(root, 'noise'), randomBytes(9_000_000));
    const full = await take(archive, { n: 1 });
    expect(full.bytes.length).toBeLessThan(9_500_000);
    const other = await space();
    await other.archive.restore(sending([full]));
    expect(seen(other.root)).toEqual(seen(root));
    expect(statSync(path.join(other.root, 'sparse')).blocks * 512).toBeLessThan(2_000_000);
  });

  it('takes ten thousand small files, and then only what changed', async () => {
    const { root, archive, reopen } = await space();
    for (let at = 0; at < 10_000; at += 1) {
      if (at % 100 === 0) mkdirSync(path.join(root, `d${at / 100}`));
      writeFileSync(path.join(root, `d${Math.floor(at / 100)}`, `f${at}`), `file ${at}`);
    }
    const full = await take(archive, { n: 1 });
    expect(full.manifest.entries).toBe(10_100);
    for (const isDue of [false, true])
      expect((await take(archive, { n: 2, base: 1, full: isDue })).manifest).toMatchObject({ unchanged: true, n: 1 });

    writeFileSync(path.join(root, 'd1', 'f100'), 'changed, same folder');
    chmodSync(path.join(root, 'd2', 'f200'), 0o600);
    renameSync(path.join(root, 'd3'), path.join(root, 'moved'));
    rmSync(path.join(root, 'd4', 'f400'));
    rmSync(path.join(root, 'd5'), { recursive: true });
    writeFileSync(path.join(root, 'd5'), 'a file where a folder was');
    // A new life of the daemon knows what the last one archived.
    const delta = await take(await reopen(), { n: 2, base: 1 });
    expect(delta.manifest.base).toBe(1);
    expect([...delta.manifest.deleted].sort()).toEqual(
      ['d3', 'd4/f400', ...Array.from({ length: 100 }, (_, at) => `d5/f${500 + at}`)].sort(),
    );
    expect(delta.manifest.entries).toBeLessThan(120);

    const other = await space();
    await other.archive.restore(sending([full, delta]));
    // What was restored is known, so that the next archive is a delta again.
    writeFileSync(path.join(other.root, 'new'), 'x');
    expect((await take(other.archive, { n: 3, base: 2 })).manifest).toMatchObject({ base: 2, entries: 1, deleted: [] });
    rmSync(path.join(other.root, 'new'));
    expect(seen(other.root)).toEqual(seen(root));
  });

  it('makes a full archive where it does not know the one before', async () => {
    const { root, archive } = await space();
    writeFileSync(path.join(root, 'a'), 'x');
    expect((await take(archive, { n: 8, base: 7 })).manifest).toMatchObject({ n: 8, base: 0, entries: 1 });
  });

  it('leaves a workspace alone that comes from that archive, unless it is forced', async () => {
    const { root, archive } = await space();
    writeFileSync(path.join(root, 'a'), 'archived');
    const full = await take(archive, { n: 1 });
    writeFileSync(path.join(root, 'a'), 'changed since');
    expect(await archive.restore(sending([full]))).toEqual({ entries: 0, hadIt: true });
    expect(readFileSync(path.join(root, 'a'), 'utf8')).toBe('changed since');
    expect(await archive.restore(sending([full], { force: true }))).toEqual({ entries: 1, hadIt: false });
    expect(readFileSync(path.join(root, 'a'), 'utf8')).toBe('archived');
  });

  it('holds back calls that change files until it is done', async () => {
    const { root, archive } = await space();
    writeFileSync(path.join(root, 'a'), randomBytes(3_000_000));
    const parts = archive
      .snapshot({ n: 1, base: 0, baseSha256: '', excludes: [], maxBytes: 0, last: false, full: false })
      [Symbol.asyncIterator]();
    await parts.next();
    let isThrough = false;
    const held = archive.gate.pass().then(() => (isThrough = true));
    await new Promise((resolve) => setImmediate(resolve));
    expect(isThrough).toBe(false);
    while (!(await parts.next()).done);
    await held;
  });

  it('opens the way again when whoever wanted the archive leaves, and when it grows too large', async () => {
    const { root, archive } = await space();
    writeFileSync(path.join(root, 'a'), randomBytes(3_000_000));
    const parts = archive
      .snapshot({ n: 1, base: 0, baseSha256: '', excludes: [], maxBytes: 0, last: false, full: false })
      [Symbol.asyncIterator]();
    await parts.next();
    await parts.return?.();
    await archive.gate.pass();
    await expect(take(archive, { n: 1, maxBytes: 1_000_000 })).rejects.toMatchObject({ reason: 'snapshot_too_large' });
    await archive.gate.pass();
    expect((await take(archive, { n: 1 })).manifest.entries).toBe(1);
  });
});

describe('the restore of an archive', () => {
  const file = (name: string): Partial<Header> & { name: string; content: string } => ({ name, content: 'evil' });
  const hostile: [string, Parameters<typeof forged>[0]][] = [
    ['climbs out', [file('../evil')]],
    ['climbs out from within', [{ name: 'a', type: 'directory' }, file('a/../../evil')]],
    ['is absolute', [file('/tmp/margay-evil')]],
    ['writes through a link', [{ name: 'out', type: 'symlink', linkname: '/tmp' }, file('out/margay-evil')]],
    [
      'writes through a link that was a folder',
      [{ name: 'out', type: 'directory' }, { name: 'out', type: 'symlink', linkname: '/tmp' }, file('out/margay-evil')],
    ],
    ['links to a file outside', [{ name: 'passwd', type: 'link', linkname: '/etc/passwd' }]],
    ['links up and out', [{ name: 'passwd', type: 'link', linkname: '../../../../../../../../etc/passwd' }]],
    [
      'links to a link',
      [
        { name: 'a', type: 'symlink', linkname: '/etc/passwd' },
        { name: 'b', type: 'link', linkname: 'a' },
      ],
    ],
    ['brings a device', [{ name: 'sda', type: 'block-device', devmajor: 8, devminor: 0 }]],
    ['brings a pipe', [{ name: 'pipe', type: 'fifo' }]],
    [
      'hides its name',
      [{ name: 'fine', pax: { 'MARGAY.path': Buffer.from('../evil').toString('base64') }, content: 'x' }],
    ],
  ];

  it.each(hostile)('refuses one that %s, and leaves everything as it was', async (_, entries) => {
    const { root, archive } = await space();
    writeFileSync(path.join(root, 'mine'), 'untouched');
    const before = seen(root);
    const refused = archive.restore(sending([await forged(entries)]));
    await expect(refused).rejects.toMatchObject({ reason: 'bad_archive' });
    expect(seen(root)).toEqual(before);
    expect(existsSync('/tmp/margay-evil')).toBe(false);
    expect(readdirSync(path.dirname(root)).sort()).toEqual(['state', 'ws']);
  });

  it('takes the special bits off files', async () => {
    const { root, archive } = await space();
    await archive.restore(sending([await forged([{ name: 'su', mode: 0o6755, content: 'x' }])]));
    expect(lstatSync(path.join(root, 'su')).mode & 0o7777).toBe(0o755);
  });

  it('refuses what unpacks to more than it may, or was cut, changed or counted wrongly', async () => {
    const { root, archive } = await space();
    writeFileSync(path.join(root, 'mine'), 'untouched');
    const bomb = await forged([{ name: 'zeros', content: '\0'.repeat(5_000_000) }]);
    expect(bomb.bytes.length).toBeLessThan(5_000);
    const good = await forged([file('a'), file('b')]);
    const cut = { ...good, bytes: good.bytes.subarray(0, good.bytes.length - 20) };
    const changed = { ...good, manifest: { ...good.manifest, sha256: 'a'.repeat(64) } };
    const miscounted = await forged([file('a')], { entries: 2 });
    const bomber = archive.restore(sending([bomb], { maxBytes: 1_000_000 }));
    await expect(bomber).rejects.toMatchObject({ reason: 'archive_too_large' });
    for (const one of [cut, changed, miscounted])
      await expect(archive.restore(sending([one]))).rejects.toMatchObject({ reason: 'bad_archive' });
    await expect(archive.restore(sending([{ ...good, bytes: Buffer.from('nonsense') }]))).rejects.toMatchObject({
      reason: 'bad_archive',
    });
    expect(readdirSync(root)).toEqual(['mine']);
  });

  it('puts back what a crash in the middle moved away', async () => {
    const { root, reopen } = await space();
    mkdirSync(path.join(root, '.margay-restore/old'), { recursive: true });
    mkdirSync(path.join(root, '.margay-restore/new'));
    writeFileSync(path.join(root, '.margay-restore/old/mine'), 'old');
    writeFileSync(path.join(root, '.margay-restore/halfway'), '');
    writeFileSync(path.join(root, 'half'), 'new');
    await reopen();
    expect(readdirSync(root)).toEqual(['mine']);
  });

  it('is left alone by another daemon that starts on the same volume meanwhile', async () => {
    const source = await space();
    writeFileSync(path.join(source.root, 'file'), 'kept');
    const taken = await take(source.archive, { n: 1 });
    const { root, archive } = await space();
    let goOn: () => void = () => undefined;
    const started = new Promise<void>((resolve) => (goOn = resolve));
    async function* slowly() {
      for await (const message of sending([taken])) {
        if (message.message?.$case === 'chunk') await started;
        yield message;
      }
    }
    const restored = archive.restore(slowly());
    while (!existsSync(path.join(root, '.margay-restore/new'))) await delay(10);
    const state = path.join(root, '../state-of-another');
    mkdirSync(state);
    const other = await WorkspaceArchive.open(root, state);
    let mayCall = false;
    const passed = other.gate.pass().then(() => (mayCall = true));
    goOn();
    expect(await restored).toEqual({ entries: 1, hadIt: false });
    expect(mayCall).toBe(false);
    await passed;
    expect(readdirSync(root)).toEqual(['file']);
  });
});
