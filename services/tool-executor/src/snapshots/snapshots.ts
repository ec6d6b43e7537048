import { createHash } from 'node:crypto';
import { Readable } from 'node:stream';
import { createZstdDecompress } from 'node:zlib';
import type { sandboxdPb } from '@margay/contracts';
import { FailedPreconditionError, isMargayError, NotFoundError, UnavailableError } from '@margay/errors';
import type { Logger } from '@margay/platform';
import { extract } from 'tar-stream';
import type { SandboxConnection } from '../sandbox/sandbox-connection';
import { kindOf, type Archive, type ArchiveOwner, type ArchiveStore, type Chunks } from './archive-store';
import { chainTo, mayGrow, outdated } from './retention';

/** A sandbox whose workspace is archived or restored; utility sandboxes are such. */
export interface ArchivePlace {
  client: Pick<SandboxConnection['client'], 'snapshot' | 'restore'>;
  /** Of a grant that covers `admin`. */
  token: () => Promise<string>;
}

export interface SnapshotObserver {
  taken(kind: 'full' | 'delta', seconds: number): void;
  failed(reason: string): void;
}

export interface SnapshotsOptions {
  store: ArchiveStore;
  logger: Logger;
  observer?: SnapshotObserver | undefined;
}

export interface TakeOptions {
  /** The sandbox is leaving. */
  last?: boolean;
  timeoutMs?: number;
  excludes?: readonly string[];
}

const TAKE_MS = 600_000;
const RESTORE_MS = 900_000;
/** Headers of one file, about; and what may be read ahead of it. */
const HEADERS_BYTES = 1_536;
const BETWEEN_FILES_MAX = 64 * 1024 ** 2;

/** Makes archives of workspaces and brings them back (cluster §2.5). */
export class Snapshots {
  constructor(private readonly options: SnapshotsOptions) {}

  /**
   * Archives what changed since the newest archive, or everything where that is due.
   * @returns the newest archive then, which is an old one if nothing changed
   * @throws ABORTED `snapshot_dropped`, RESOURCE_EXHAUSTED `snapshot_too_large`
   */
  async take(owner: ArchiveOwner, place: ArchivePlace, options: TakeOptions = {}): Promise<Archive> {
    const startedAt = performance.now();
    try {
      const { archive, isNew } = await this.takeNext(owner, place, options);
      if (!isNew) return archive;
      this.options.observer?.taken(kindOf(archive), (performance.now() - startedAt) / 1_000);
      await this.prune(owner);
      return archive;
    } catch (error) {
      this.options.observer?.failed(isMargayError(error) ? error.reason : 'internal');
      throw error;
    }
  }

  list(owner: ArchiveOwner): Promise<Archive[]> {
    return this.options.store.list(owner);
  }

  /** @throws NOT_FOUND `snapshot_not_found` */
  async get(owner: ArchiveOwner, n: number): Promise<Archive> {
    const found = (await this.list(owner)).find((archive) => archive.n === n);
    if (found) return found;
    throw new NotFoundError('snapshot_not_found', `Workspace ${owner.workspaceId} has no snapshot ${n}.`);
  }

  /**
   * Puts the files of an archive, the newest unless named, in the place of what the workspace holds. One that comes from it
   * already stays as it is, unless forced.
   * @returns undefined where there is no archive
   */
  async restore(
    owner: ArchiveOwner,
    place: ArchivePlace,
    options: { n?: number; force?: boolean; maxBytes?: number } = {},
  ): Promise<Archive | undefined> {
    const archives = await this.list(owner);
    const n = options.n ?? archives.at(-1)?.n;
    if (n === undefined) return undefined;
    const chain = chainTo(archives, n);
    const wanted = chain.at(-1);
    if (!wanted)
      throw new FailedPreconditionError(
        'snapshot_incomplete',
        `Snapshot ${n} of workspace ${owner.workspaceId} lacks an archive that it is based on; choose another one.`,
      );
    const { maxBytes = 0, force = false } = options;
    const messages = this.messages(chain, { n, sha256: wanted.sha256, maxBytes, force });
    await place.client.restore(messages, { grant: await place.token(), timeoutMs: RESTORE_MS });
    return wanted;
  }

  /**
   * Reads an archive back and everything it is based on.
   * @throws FAILED_PRECONDITION `snapshot_damaged` unless it is what was stored; UNAVAILABLE where that cannot be told now
   */
  async check(owner: ArchiveOwner, n: number): Promise<void> {
    const chain = chainTo(await this.list(owner), n);
    if (chain.length === 0) throw damaged(owner, n, 'an archive is missing');
    for (const archive of chain) {
      const hash = createHash('sha256');
      const entries = await countEntries(hashed(this.options.store.read(archive), hash)).catch((error: unknown) => {
        if (isMargayError(error) && error.code === 'UNAVAILABLE') throw error;
        throw damaged(owner, archive.n, error instanceof Error ? error.message : String(error));
      });
      if (hash.digest('hex') !== archive.sha256) throw damaged(owner, archive.n, 'its bytes are others');
      if (entries !== archive.entries) throw damaged(owner, archive.n, `it has ${entries} entries`);
    }
  }

  /** Archives of one workspace become those of another, which has none. @returns the newest */
  async copy(from: ArchiveOwner, n: number, to: ArchiveOwner): Promise<Archive | undefined> {
    const { store } = this.options;
    const known = new Set((await store.list(to)).map((archive) => archive.n));
    let newest: Archive | undefined;
    for (const archive of chainTo(await store.list(from), n)) {
      const mine = { ...archive, ...to };
      newest = known.has(archive.n) ? mine : await store.put(to, store.read(archive), () => mine);
    }
    return newest;
  }

  /** One that is nobody's. */
  remove(archive: Archive): Promise<void> {
    return this.options.store.remove(archive);
  }

  async removeAll(owner: ArchiveOwner): Promise<void> {
    // The newest first: what is left of a chain, should this be broken off, is whole.
    for (const archive of (await this.list(owner)).reverse()) await this.options.store.remove(archive);
  }

  private async takeNext(owner: ArchiveOwner, place: ArchivePlace, { last, timeoutMs, excludes }: TakeOptions) {
    const { store, logger } = this.options;
    const archives = await store.list(owner);
    const newest = archives.at(-1);
    const base = newest?.n ?? 0;
    const full = !mayGrow(chainTo(archives, base));
    const n = base + 1;
    const of = { n, base, baseSha256: newest?.sha256 ?? '', full };
    const request = { ...of, excludes: [...(excludes ?? [])], maxBytes: store.maxBytes, last: last ?? false };
    const grant = await place.token();
    const stream = new Receiving(place.client.snapshot(request, { grant, timeoutMs: timeoutMs ?? TAKE_MS }));
    const known = await stream.begin();
    if (known?.unchanged && newest) return { archive: newest, isNew: false };
    const archive = await store.put(owner, stream.chunks(), () => ({
      ...owner,
      ...stream.manifest(request),
      at: new Date(),
    }));
    const { bytes, entries } = archive;
    logger.info({ workspaceId: owner.workspaceId, n, kind: kindOf(archive), bytes, entries }, 'workspace archived');
    return { archive, isNew: true };
  }

  private async prune(owner: ArchiveOwner): Promise<void> {
    const { store, logger } = this.options;
    try {
      for (const archive of outdated(await store.list(owner), Date.now())) await store.remove(archive);
    } catch (error) {
      logger.warn({ err: error, workspaceId: owner.workspaceId }, 'old archives are left for the next time');
    }
  }

  private async *messages(
    chain: readonly Archive[],
    open: sandboxdPb.RestoreOpen,
  ): AsyncIterable<sandboxdPb.RestoreRequest> {
    yield { message: { $case: 'open', value: open } };
    for (const archive of chain) {
      const { n, base, entries, bytes, sha256, revision } = archive;
      const manifest = { n, base, entries, bytes, sha256, revision, deleted: [...archive.deleted], unchanged: false };
      yield { message: { $case: 'archive', value: manifest } };
      for await (const value of this.options.store.read(archive))
        yield { message: { $case: 'chunk', value: Buffer.from(value) } };
    }
  }
}

/** An archive on its way from a sandbox, which is not trusted to count. */
class Receiving {
  private readonly messages: AsyncIterator<sandboxdPb.SnapshotResponse>;
  private readonly hash = createHash('sha256');
  private first: sandboxdPb.SnapshotResponse | undefined;
  private end: sandboxdPb.ArchiveManifest | undefined;
  private bytes = 0;
  private sha256 = '';

  constructor(messages: AsyncIterable<sandboxdPb.SnapshotResponse>) {
    this.messages = messages[Symbol.asyncIterator]();
  }

  /** @returns the manifest if it comes first */
  async begin(): Promise<sandboxdPb.ArchiveManifest | undefined> {
    const { value, done } = await this.messages.next();
    if (!done) this.first = value;
    return this.first?.message?.$case === 'manifest' ? this.first.message.value : undefined;
  }

  async *chunks(): Chunks {
    try {
      for (let next = this.first; next; next = await this.next()) {
        if (next.message?.$case === 'manifest') this.end = next.message.value;
        if (next.message?.$case !== 'chunk') continue;
        this.bytes += next.message.value.length;
        this.hash.update(next.message.value);
        yield next.message.value;
      }
      this.sha256 = this.hash.digest('hex');
    } finally {
      await this.messages.return?.();
    }
  }

  /** What it is, once all of it has come. @throws UNAVAILABLE `snapshot_incomplete` */
  manifest(wanted: { n: number; base: number }): Omit<Archive, keyof ArchiveOwner | 'at'> {
    const { end } = this;
    const isWhole = end?.bytes === this.bytes && end.sha256 === this.sha256;
    if (!isWhole || end.n !== wanted.n || ![0, wanted.base].includes(end.base))
      throw new UnavailableError('snapshot_incomplete', 'The archive broke off on its way; it is tried again later.');
    const { n, base, entries, deleted, bytes, sha256, revision } = end;
    return { n, base, entries, deleted, bytes, sha256, revision };
  }

  private async next(): Promise<sandboxdPb.SnapshotResponse | undefined> {
    const { value, done } = await this.messages.next();
    return done ? undefined : value;
  }
}

/** Whoever made it is not trusted: nothing of it is held in memory but what stands between two files, and that is little. */
async function countEntries(bytes: Chunks): Promise<number> {
  const reader = extract();
  let unexplained = 0;
  const source = Readable.from(bytes);
  const zstd = createZstdDecompress();
  source.on('error', (error) => zstd.destroy(error)).pipe(zstd);
  zstd.on('error', (error) => reader.destroy(error)).pipe(reader as unknown as NodeJS.WritableStream);
  zstd.on('data', (piece: Buffer) => {
    unexplained += piece.length;
    if (unexplained > BETWEEN_FILES_MAX) reader.destroy(new Error('it is no archive of files'));
  });
  let count = 0;
  try {
    for await (const entry of reader) {
      count += 1;
      unexplained -= entry.header.size + HEADERS_BYTES;
      entry.resume();
    }
    return count;
  } finally {
    source.destroy();
    zstd.destroy();
  }
}

async function* hashed(chunks: Chunks, hash: ReturnType<typeof createHash>): Chunks {
  for await (const chunk of chunks) {
    hash.update(chunk);
    yield chunk;
  }
}

function damaged({ workspaceId }: ArchiveOwner, n: number, why: string): Error {
  return new FailedPreconditionError(
    'snapshot_damaged',
    `Snapshot ${n} of workspace ${workspaceId} is not what was stored: ${why}.`,
  );
}
