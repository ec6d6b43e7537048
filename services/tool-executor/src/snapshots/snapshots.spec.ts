import { createHash } from 'node:crypto';
import { zstdCompressSync, zstdDecompressSync } from 'node:zlib';
import type { sandboxdPb } from '@margay/contracts';
import { UnavailableError } from '@margay/errors';
import { createLogger } from '@margay/platform';
import { extract, pack } from 'tar-stream';
import { ArchiveStore, nameOf, type Archive, type ArchiveOwner, type Chunks } from './archive-store';
import { Snapshots, type ArchivePlace } from './snapshots';

class MemoryStore extends ArchiveStore {
  readonly maxBytes = 1_000_000;
  readonly bytes = new Map<string, Buffer>();
  readonly archives = new Map<string, Archive>();

  async put(_: ArchiveOwner, chunks: Chunks, known: () => Archive): Promise<Archive> {
    const parts: Uint8Array[] = [];
    for await (const chunk of chunks) parts.push(chunk);
    const archive = known();
    this.bytes.set(nameOf(archive), Buffer.concat(parts));
    this.archives.set(nameOf(archive), archive);
    return archive;
  }

  async list({ tenantId, workspaceId }: ArchiveOwner): Promise<Archive[]> {
    const own = [...this.archives.values()].filter(
      (archive) => archive.tenantId === tenantId && archive.workspaceId === workspaceId,
    );
    return own.sort((a, b) => a.n - b.n);
  }

  async *read(archive: Archive): Chunks {
    yield this.bytes.get(nameOf(archive)) ?? Buffer.alloc(0);
  }

  async remove(archive: Archive): Promise<void> {
    this.archives.delete(nameOf(archive));
    this.bytes.delete(nameOf(archive));
  }
}

/** A sandbox whose workspace is a map; archives are real ones, so that they can be read back. */
class FakePlace implements ArchivePlace {
  readonly files = new Map<string, string>();
  readonly asked: sandboxdPb.SnapshotRequest[] = [];
  known = { n: 0, files: new Map<string, string>() };
  lie: Partial<sandboxdPb.ArchiveManifest> = {};

  token = async (): Promise<string> => 'token';

  get client(): ArchivePlace['client'] {
    return { snapshot: (request) => this.snapshot(request), restore: (messages) => this.restore(messages) };
  }

  private async *snapshot(request: sandboxdPb.SnapshotRequest): AsyncIterable<sandboxdPb.SnapshotResponse> {
    this.asked.push(request);
    const { n, base, full } = request;
    const isKnown = base > 0 && this.known.n === base;
    const changed = [...this.files].filter(([name, text]) => !isKnown || this.known.files.get(name) !== text);
    const deleted = isKnown ? [...this.known.files.keys()].filter((name) => !this.files.has(name)) : [];
    const empty = { n, base, entries: 0, deleted, bytes: 0, sha256: '', revision: 'r', unchanged: true };
    if (isKnown && changed.length + deleted.length === 0) return yield { message: { $case: 'manifest', value: empty } };
    const isDelta = isKnown && !full;
    const entries = isDelta ? changed : [...this.files];
    const archive = pack();
    for (const [name, text] of entries) archive.entry({ name }, text);
    archive.finalize();
    const parts: Uint8Array[] = [];
    for await (const part of archive as AsyncIterable<Uint8Array>) parts.push(part);
    const bytes = zstdCompressSync(Buffer.concat(parts));
    yield { message: { $case: 'chunk', value: bytes } };
    this.known = { n, files: new Map(this.files) };
    const sha256 = createHash('sha256').update(bytes).digest('hex');
    const facts = { base: isDelta ? base : 0, entries: entries.length, bytes: bytes.length, sha256, unchanged: false };
    if (!isDelta) deleted.splice(0);
    yield { message: { $case: 'manifest', value: { ...empty, ...facts, ...this.lie } } };
  }

  private async restore(messages: AsyncIterable<sandboxdPb.RestoreRequest>): Promise<sandboxdPb.RestoreResponse> {
    this.files.clear();
    let n = 0;
    for await (const { message } of messages) {
      if (message?.$case === 'open') n = message.value.n;
      if (message?.$case === 'archive') for (const name of message.value.deleted) this.files.delete(name);
      if (message?.$case !== 'chunk') continue;
      const reader = extract();
      reader.end(zstdDecompressSync(message.value));
      for await (const entry of reader) {
        let text = '';
        for await (const part of entry as AsyncIterable<Buffer>) text += part.toString();
        this.files.set(entry.header.name, text);
      }
    }
    this.known = { n, files: new Map(this.files) };
    return { entries: this.files.size, hadIt: false };
  }
}

const owner = { tenantId: 't1', workspaceId: 'w'.repeat(32) };
const logger = createLogger({ level: 'off' });
let store: MemoryStore;
let place: FakePlace;
let snapshots: Snapshots;
beforeEach(() => {
  store = new MemoryStore();
  place = new FakePlace();
  snapshots = new Snapshots({ store, logger });
});

const numbers = async () => (await snapshots.list(owner)).map(({ n, base }) => [n, base]);

describe('a snapshot', () => {
  it('is a full archive first, then what changed, and nothing where nothing did', async () => {
    place.files.set('a', randomText(2_000));
    expect(await snapshots.take(owner, place)).toMatchObject({ n: 1, base: 0, entries: 1 });
    place.files.set('b', '2');
    expect(await snapshots.take(owner, place)).toMatchObject({ n: 2, base: 1, entries: 1 });
    expect(await snapshots.take(owner, place)).toMatchObject({ n: 2 });
    expect(await numbers()).toEqual([
      [1, 0],
      [2, 1],
    ]);
  });

  it('is a full one again after ten deltas', async () => {
    for (let at = 0; at <= 11; at += 1) {
      // Much that cannot be squeezed, so that the deltas stay light.
      if (at === 0) place.files.set('big', randomText(60_000));
      place.files.set('a', `${at}`);
      await snapshots.take(owner, place);
    }
    expect(place.asked.map(({ full }) => full)).toEqual([true, ...Array(10).fill(false), true]);
  });

  it('is not made again where nothing changed, even if a full one is due', async () => {
    for (const text of ['1', '2']) {
      place.files.set('a', text);
      await snapshots.take(owner, place);
    }
    expect(await snapshots.take(owner, place)).toMatchObject({ n: 2 });
    expect(place.asked.at(-1)).toMatchObject({ full: true });
  });

  it('is not stored when it is not what the sandbox says', async () => {
    place.files.set('a', '1');
    for (const lie of [{ bytes: 1 }, { sha256: 'f'.repeat(64) }]) {
      place.lie = lie;
      await expect(snapshots.take(owner, place)).rejects.toMatchObject({ reason: 'snapshot_incomplete' });
    }
    expect(await numbers()).toEqual([]);
  });

  it.each([{ n: 2 ** 40 }, { n: 1 }, { base: 7 }])('does not bear a number that nobody gave it: %p', async (lie) => {
    place.files.set('a', 'one');
    await snapshots.take(owner, place);
    place.files.set('a', 'two');
    place.lie = lie;
    await expect(snapshots.take(owner, place)).rejects.toMatchObject({ reason: 'snapshot_incomplete' });
    expect(await numbers()).toEqual([[1, 0]]);
  });

  it('says which archive it is to be the difference to, not only its number', async () => {
    place.files.set('a', 'one');
    const { sha256 } = await snapshots.take(owner, place);
    await snapshots.take(owner, place);
    expect(place.asked.map(({ base, baseSha256 }) => [base, baseSha256])).toEqual([
      [0, ''],
      [1, sha256],
    ]);
  });

  it('is read back, and any difference is found', async () => {
    place.files.set('a', randomText(2_000));
    await snapshots.take(owner, place);
    place.files.set('b', '2');
    await snapshots.take(owner, place);
    await snapshots.check(owner, 2);
    const [first] = await snapshots.list(owner);
    const name = nameOf(first as Archive);
    const bytes = store.bytes.get(name) as Buffer;
    store.bytes.set(name, bytes.subarray(0, bytes.length - 5));
    await expect(snapshots.check(owner, 2)).rejects.toMatchObject({ reason: 'snapshot_damaged' });
    store.bytes.set(name, bytes);
    store.archives.set(name, { ...(first as Archive), entries: 7 });
    await expect(snapshots.check(owner, 2)).rejects.toMatchObject({ reason: 'snapshot_damaged' });
    await store.remove(first as Archive);
    await expect(snapshots.check(owner, 2)).rejects.toMatchObject({ reason: 'snapshot_damaged' });
  });
});

it('is not called damaged where its store does not answer', async () => {
  place.files.set('a', '1');
  await snapshots.take(owner, place);
  store.read = async function* () {
    throw new UnavailableError('blob_store_unavailable', 'the bucket does not answer');
  };
  await expect(snapshots.check(owner, 1)).rejects.toMatchObject({ reason: 'blob_store_unavailable' });
});

it('reads no header into memory that never ends', async () => {
  // As a sandbox could send it: a name of 100 MB, which shrinks to nothing.
  const archive = pack();
  archive.entry({ name: 'a', pax: { comment: 'x'.repeat(100_000_000) } }, '');
  archive.finalize();
  const parts: Uint8Array[] = [];
  for await (const part of archive as AsyncIterable<Uint8Array>) parts.push(part);
  const bytes = zstdCompressSync(Buffer.concat(parts));
  const sha256 = createHash('sha256').update(bytes).digest('hex');
  async function* chunks(): Chunks {
    yield bytes;
  }
  const facts = { n: 1, base: 0, entries: 1, deleted: [], bytes: bytes.length, sha256, revision: '', at: new Date() };
  await store.put(owner, chunks(), () => ({ ...owner, ...facts }));
  await expect(snapshots.check(owner, 1)).rejects.toMatchObject({ reason: 'snapshot_damaged' });
});

describe('a restore', () => {
  beforeEach(async () => {
    for (const text of ['one', 'two', 'three']) {
      place.files.set('a', text + randomText(2_000));
      place.files.set(text, text);
      if (text === 'three') place.files.delete('one');
      await snapshots.take(owner, place);
    }
  });

  it('brings the newest back, or the one that is named', async () => {
    const other = new FakePlace();
    expect(await snapshots.restore(owner, other)).toMatchObject({ n: 3 });
    expect([...other.files.keys()].sort()).toEqual(['a', 'three', 'two']);
    expect(await snapshots.restore(owner, other, { n: 2 })).toMatchObject({ n: 2 });
    expect([...other.files.keys()].sort()).toEqual(['a', 'one', 'two']);
  });

  it('of another workspace finds nothing, and of one with a gap says so', async () => {
    expect(await snapshots.restore({ ...owner, tenantId: 't2' }, new FakePlace())).toBeUndefined();
    const wanted = snapshots.restore(owner, place, { n: 9 });
    await expect(wanted).rejects.toMatchObject({ reason: 'snapshot_incomplete' });
    await expect(snapshots.get(owner, 9)).rejects.toMatchObject({ reason: 'snapshot_not_found' });
  });

  it('works from a copy for another workspace, which then goes its own way', async () => {
    const fork = { ...owner, workspaceId: 'f'.repeat(32) };
    expect(await snapshots.copy(owner, 3, fork)).toMatchObject({ n: 3, ...fork });
    await snapshots.removeAll(owner);
    expect(await numbers()).toEqual([]);
    const other = new FakePlace();
    expect(await snapshots.restore(fork, other)).toMatchObject({ n: 3 });
    other.files.set('new', '4');
    expect(await snapshots.take(fork, other)).toMatchObject({ n: 4 });
  });
});

/** Hardly shrinks. */
function randomText(length: number): string {
  let text = '';
  for (let at = 0; text.length < length; at += 1) text += createHash('sha512').update(`${at}`).digest('base64');
  return text.slice(0, length);
}
