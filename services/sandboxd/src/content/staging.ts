import { randomBytes } from 'node:crypto';
import { lstat, mkdir, readdir, rename, rm } from 'node:fs/promises';
import path from 'node:path';
import { FailedPreconditionError } from '@margay/errors';
import { removeTree } from '@margay/toolbox';
import { z } from 'zod';
import { readPlain, replacePlain } from '../files/plain-file';
import { ContentFailure } from './content-failure';

/**
 * How far bringing content has come. `moving`: what lies in the workspace is half of it; `done`: all of it. Other sandboxes
 * may work on the same volume, so it lies there.
 */
const Marker = z.object({
  contentId: z.string(),
  attempt: z.number().int(),
  phase: z.enum(['staging', 'moving', 'done']),
  head: z.string().default(''),
});
export type Marker = z.infer<typeof Marker>;

const OWN = '.margay';
/** Left in a new workspace by whoever made it: Margay, and the file system. */
const STAYING = new Set([OWN, 'lost+found']);
const BARE = new Set(['CLAUDE.md']);

/** The folders in which content is made ready beside the workspace's files, and how it gets to its place. */
export class Staging {
  private readonly own: string;
  private readonly base: string;

  constructor(private readonly root: string) {
    this.own = path.join(root, OWN);
    this.base = path.join(this.own, 'content');
  }

  /** Where the tree is made. */
  get tree(): string {
    return path.join(this.base, 'tree');
  }

  upload(contentId: string): string {
    return path.join(this.base, `upload-${contentId}`);
  }

  /** Our folder, for the case that there is none or something else bears its name. */
  async open(): Promise<void> {
    for (const folder of [this.own, this.base]) {
      const facts = await lstat(folder).catch(() => undefined);
      if (facts?.isDirectory()) continue;
      if (facts) await rm(folder, { force: true });
      await mkdir(folder, { mode: 0o700 });
    }
    // Git does not show a folder that ignores itself.
    await replacePlain(path.join(this.own, '.gitignore'), '*\n');
  }

  /**
   * Begins anew: whatever an earlier try left is removed. @returns what is done already
   * @throws FailedPreconditionError `stale_attempt`
   */
  async begin(contentId: string, attempt: number): Promise<{ done?: Marker; wasMoving: boolean }> {
    await this.open();
    const marker = await this.read();
    if (marker && marker.attempt > attempt)
      throw new FailedPreconditionError('stale_attempt', 'A later try brings the content of this workspace.');
    if (marker?.contentId === contentId && marker.phase === 'done') return { done: marker, wasMoving: false };
    const wasMoving = marker?.phase === 'moving';
    for (const name of await readdir(this.base))
      if (name !== path.basename(this.upload(contentId))) await removeTree(path.join(this.base, name));
    // Still half there, should this try break off, too.
    await this.write({ contentId, attempt, phase: wasMoving ? 'moving' : 'staging', head: '' });
    await mkdir(this.tree);
    return { wasMoving };
  }

  /** Puts the tree into its place. What is there already must be bare, or half of an earlier try, or to be replaced. */
  async publish({ contentId, attempt }: Marker, mayReplace: boolean, head: string): Promise<void> {
    const there = await this.entries();
    if (!mayReplace && there.some((name) => !BARE.has(name.toString())))
      throw new ContentFailure('not_empty', 'The workspace has files of its own already; ask to replace them.');
    await this.requireCurrent(attempt);
    await this.write({ contentId, attempt, phase: 'moving', head });
    const old = path.join(this.base, `old-${randomBytes(4).toString('hex')}`);
    await mkdir(old);
    for (const name of there) await rename(within(this.root, name), within(old, name));
    for (const name of await readdir(this.tree, { encoding: 'buffer' }))
      await rename(within(this.tree, name), within(this.root, name));
    await this.finish({ contentId, attempt, phase: 'done', head });
  }

  /** Nothing was to be moved. */
  async finish(marker: Marker): Promise<void> {
    await this.write(marker);
    await this.clear();
  }

  async clear(): Promise<void> {
    for (const name of await readdir(this.base)) await removeTree(path.join(this.base, name));
  }

  private async requireCurrent(attempt: number): Promise<void> {
    const marker = await this.read();
    if (marker?.attempt === attempt) return;
    throw new FailedPreconditionError('stale_attempt', 'A later try brings the content of this workspace.');
  }

  /** Names need not be text. */
  private async entries(): Promise<Buffer[]> {
    const names = await readdir(this.root, { encoding: 'buffer' });
    return names.filter((name) => !STAYING.has(name.toString()));
  }

  private get file(): string {
    return path.join(this.own, 'content.json');
  }

  private async read(): Promise<Marker | undefined> {
    const text = await readPlain(this.file);
    try {
      return Marker.parse(JSON.parse(text));
    } catch {
      return undefined; // none, or what somebody else wrote there
    }
  }

  private async write(marker: Marker): Promise<void> {
    await replacePlain(this.file, JSON.stringify(marker));
  }
}

function within(folder: string, name: Buffer): Buffer {
  return Buffer.concat([Buffer.from(`${folder}/`), name]);
}
