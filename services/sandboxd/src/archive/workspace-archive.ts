import { createHash } from 'node:crypto';
import type { sandboxdPb } from '@margay/contracts';
import { AbortedError, InvalidArgumentError, ResourceExhaustedError } from '@margay/errors';
import { ArchiveIndex } from './archive-index';
import { placeOf, readTree, revisionOf, type TreeEntry } from './tree';
import { textOf, type ArchivePath } from './archive-path';
import { CallsGate } from './calls-gate';
import { packTree } from './pack-tree';
import { Swap } from './swap';
import { setFolder, Unpacking } from './unpack-tree';

/** Calls wait so long for an archive before it is given up; whoever wanted it tries again. */
const PATIENCE_MS = 30_000;
/** A restore is never given up for a call. */
const NEVER_MS = 2_147_483_647;
const CHUNK_BYTES = 1024 * 1024;
/** Above so many lost paths a full archive says it in fewer words. */
const DELETED_MAX = 10_000;

type SnapshotResponse = sandboxdPb.SnapshotResponse;

/** Archives of a workspace and their return (cluster §2.5): one at a time, and no call changes files meanwhile. */
export class WorkspaceArchive {
  readonly gate = new CallsGate();
  private turn: Promise<unknown> = Promise.resolve();

  private constructor(
    private readonly root: string,
    private index: ArchiveIndex,
  ) {}

  static async open(root: string, stateFolder: string): Promise<WorkspaceArchive> {
    const archive = new WorkspaceArchive(root, await ArchiveIndex.open(stateFolder));
    const swap = new Swap(root);
    if (await swap.hasBeat()) archive.recoverLater(swap);
    else await swap.recover();
    return archive;
  }

  /**
   * Streams an archive, and its manifest at the end.
   * @throws ABORTED `snapshot_dropped` when calls waited too long, RESOURCE_EXHAUSTED `snapshot_too_large`
   */
  async *snapshot(request: sandboxdPb.SnapshotRequest): AsyncIterable<SnapshotResponse> {
    const parts = new Handover<SnapshotResponse>();
    const work = this.next(() =>
      this.gate.whileClosed(PATIENCE_MS, (impatient) => this.write(request, impatient, parts)),
    );
    work.then(
      () => parts.end(),
      (error: unknown) => parts.fail(error),
    );
    try {
      yield* parts.read();
    } finally {
      parts.leave();
    }
  }

  /** @throws INVALID_ARGUMENT `bad_archive`, RESOURCE_EXHAUSTED `archive_too_large`; then everything is as it was */
  restore(messages: AsyncIterable<sandboxdPb.RestoreRequest>): Promise<sandboxdPb.RestoreResponse> {
    return this.next(() => this.gate.whileClosed(NEVER_MS, () => this.read(messages)));
  }

  /** Another daemon on the same volume may be at it: its files are left to it, and calls wait until it is done. */
  private recoverLater(swap: Swap): void {
    this.next(() => this.gate.whileClosed(NEVER_MS, () => swap.recoverOnceStill())).catch(() => undefined); // whoever restores next is told
  }

  private next<T>(work: () => Promise<T>): Promise<T> {
    const done = this.turn.then(work);
    this.turn = done.catch(() => undefined); // told to who asked
    return done;
  }

  private async write(
    { n, base, baseSha256, excludes, maxBytes, full }: sandboxdPb.SnapshotRequest,
    impatient: AbortSignal,
    parts: Handover<SnapshotResponse>,
  ): Promise<void> {
    const tree = await readTree(this.root, excludes);
    const revision = revisionOf(tree);
    const isKnown = this.index.isOf({ n: base, sha256: baseSha256 });
    const delta = isKnown ? this.index.compare(tree) : undefined;
    if (delta && delta.changed.length === 0 && delta.deleted.length === 0)
      return parts.give(manifestOf({ n: base, base, revision, unchanged: true }));
    const isDelta = delta !== undefined && !full && delta.deleted.length <= DELETED_MAX;
    const entries = isDelta ? delta.changed : tree;
    const packed = await this.pack(entries, { maxBytes, impatient, parts });
    this.index = await this.index.follow({ n, sha256: packed.sha256 }, tree);
    const deleted = isDelta ? delta.deleted.map(textOf) : [];
    await parts.give(manifestOf({ n, base: isDelta ? base : 0, revision, deleted, ...packed }));
  }

  private async pack(
    entries: readonly TreeEntry[],
    { maxBytes, impatient, parts }: { maxBytes: number; impatient: AbortSignal; parts: Handover<SnapshotResponse> },
  ) {
    const packing = packTree(this.root, entries);
    const hash = createHash('sha256');
    let bytes = 0;
    try {
      for await (const piece of packing.stream as AsyncIterable<Buffer>) {
        if (impatient.aborted) throw dropped();
        bytes += piece.length;
        if (maxBytes > 0 && bytes > maxBytes) throw tooLarge(maxBytes);
        hash.update(piece);
        for (let at = 0; at < piece.length; at += CHUNK_BYTES) {
          const chunk = piece.subarray(at, at + CHUNK_BYTES);
          await parts.give({ message: { $case: 'chunk', value: chunk } });
        }
      }
    } finally {
      packing.stream.destroy();
    }
    return { bytes, sha256: hash.digest('hex'), entries: packing.count };
  }

  private async read(messages: AsyncIterable<sandboxdPb.RestoreRequest>): Promise<sandboxdPb.RestoreResponse> {
    const input = messages[Symbol.asyncIterator]();
    const first = await input.next();
    const open = first.done ? undefined : first.value.message;
    if (open?.$case !== 'open') throw new InvalidArgumentError('bad_archive', 'A restore begins with what it is.');
    const { n, sha256, force, maxBytes } = open.value;
    if (!force && this.index.isOf({ n, sha256 })) {
      while (!(await input.next()).done);
      return { entries: 0, hadIt: true };
    }
    const swap = new Swap(this.root);
    await swap.begin();
    try {
      const unpacking = new Unpacking(swap.fresh, maxBytes);
      let entries = 0;
      let last = '';
      for (let archive = await nextArchive(input); archive; archive = await nextArchive(input, archive)) {
        entries += await unpacking.add(archive);
        last = archive.sha256;
      }
      const top = await unpacking.finish();
      await swap.commit();
      await this.close(top);
      this.index = await this.index.follow({ n, sha256: last }, await readTree(this.root));
      return { entries, hadIt: false };
    } finally {
      await swap.end();
    }
  }

  private async close(top: Awaited<ReturnType<Unpacking['finish']>>): Promise<void> {
    for (const [path, facts] of top) await setFolder(placeOf(this.root, path as ArchivePath), facts);
  }
}

interface IncomingArchive {
  chunks: AsyncIterable<Uint8Array>;
  entries: number;
  sha256: string;
  deleted: readonly string[];
  /** What came behind its last chunk. */
  follower?: sandboxdPb.ArchiveManifest | undefined;
}

async function nextArchive(
  input: AsyncIterator<sandboxdPb.RestoreRequest>,
  before?: IncomingArchive,
): Promise<IncomingArchive | undefined> {
  let manifest = before?.follower;
  if (!before) {
    const { value, done } = await input.next();
    if (done) return undefined;
    if (value.message?.$case !== 'archive') throw new InvalidArgumentError('bad_archive', 'Bytes of no archive came.');
    manifest = value.message.value;
  }
  if (!manifest) return undefined;
  const { entries, sha256, deleted } = manifest;
  const archive: IncomingArchive = { entries, sha256, deleted, chunks: chunks() };
  return archive;

  async function* chunks(): AsyncIterable<Uint8Array> {
    for (let next = await input.next(); !next.done; next = await input.next()) {
      const { message } = next.value;
      if (message?.$case === 'chunk') yield message.value;
      if (message?.$case === 'archive') return void (archive.follower = message.value);
    }
  }
}

/** What one side makes as fast as the other takes it. */
class Handover<T> {
  private readonly waiting: { part: T; taken: () => void }[] = [];
  private wake: () => void = () => undefined;
  private ended: { error?: Error } | undefined;
  private isLeft = false;

  /** Resolves when it was taken. @throws when nobody takes it any more */
  give(part: T): Promise<void> {
    if (this.isLeft) throw dropped();
    return new Promise((resolve) => {
      this.waiting.push({ part, taken: resolve });
      this.wake();
    });
  }

  end(): void {
    this.ended = {};
    this.wake();
  }

  fail(error: unknown): void {
    this.ended = { error: error instanceof Error ? error : new Error(String(error)) };
    this.wake();
  }

  leave(): void {
    this.isLeft = true;
    for (const { taken } of this.waiting.splice(0)) taken();
  }

  async *read(): AsyncIterable<T> {
    for (;;) {
      const next = this.waiting.shift();
      if (next) {
        try {
          yield next.part;
        } finally {
          next.taken();
        }
      } else if (this.ended) {
        if (this.ended.error) throw this.ended.error;
        return;
      } else await new Promise<void>((resolve) => (this.wake = resolve));
    }
  }
}

function manifestOf(facts: Partial<sandboxdPb.ArchiveManifest>): SnapshotResponse {
  const empty = { n: 0, base: 0, entries: 0, deleted: [], bytes: 0, sha256: '', revision: '', unchanged: false };
  return { message: { $case: 'manifest', value: { ...empty, ...facts } } };
}

function dropped(): Error {
  return new AbortedError('snapshot_dropped', 'Calls have waited for the archive too long; it is tried again later.');
}

function tooLarge(maxBytes: number): Error {
  return new ResourceExhaustedError(
    'snapshot_too_large',
    `The archive of the workspace would have more than ${maxBytes} bytes; remove or exclude what is not needed.`,
  );
}
