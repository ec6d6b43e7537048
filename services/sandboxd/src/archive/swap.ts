import { chmod, lstat, mkdir, readdir, rename, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { placeOf, RESTORE_FOLDER } from './tree';

/** Beside the files of the workspace, on the same file system: there they can change places at once. */
export class Swap {
  /** Where the new files are made. */
  readonly fresh: string;
  private readonly folder: string;
  private readonly old: string;
  /** All old files have been moved away: what lies in the workspace is new. */
  private readonly halfway: string;
  private readonly done: string;

  constructor(private readonly root: string) {
    this.folder = path.join(root, RESTORE_FOLDER);
    [this.fresh, this.old, this.halfway, this.done] = ['new', 'old', 'halfway', 'done'].map((name) =>
      path.join(this.folder, name),
    ) as [string, string, string, string];
  }

  /** Puts right what a crash left: the old files come back, unless all the new ones were in their place. */
  async recover(): Promise<void> {
    if (!(await exists(this.folder))) return;
    if (!(await exists(this.done))) await this.putBack();
    await discard(this.folder);
  }

  async begin(): Promise<void> {
    await this.recover();
    await mkdir(this.fresh, { recursive: true, mode: 0o700 });
  }

  /** The new files take the place of all others; if that fails, the old ones are back. */
  async commit(): Promise<void> {
    await mkdir(this.old, { mode: 0o700 });
    try {
      await moveAll(this.root, this.old);
      await writeFile(this.halfway, '');
      await moveAll(this.fresh, this.root);
      await writeFile(this.done, '');
    } catch (error) {
      await this.putBack();
      throw error;
    }
  }

  /** Removes what is not needed any more. */
  async end(): Promise<void> {
    await discard(this.folder);
  }

  private async putBack(): Promise<void> {
    if (!(await exists(this.old))) return;
    if (await exists(this.halfway)) await moveAll(this.root, this.fresh);
    await moveAll(this.old, this.root);
  }
}

async function moveAll(from: string, to: string): Promise<void> {
  const names = (await readdir(from, { encoding: 'buffer' })).map((name) => name.toString('latin1'));
  for (const name of names) if (name !== RESTORE_FOLDER) await move(placeOf(from, name), placeOf(to, name));
}

/** A folder that moves is written to, so it is open meanwhile. */
async function move(source: Buffer, target: Buffer): Promise<void> {
  const facts = await lstat(source);
  const isClosed = facts.isDirectory() && (facts.mode & 0o200) === 0;
  if (isClosed) await chmod(source, (facts.mode & 0o7777) | 0o700);
  await rename(source, target);
  if (isClosed) await chmod(target, facts.mode & 0o7777);
}

async function exists(file: string): Promise<boolean> {
  return lstat(file).then(
    () => true,
    () => false, // or it cannot be seen, which is the same here
  );
}

async function discard(folder: string): Promise<void> {
  await openFolders(Buffer.from(folder));
  await rm(folder, { recursive: true, force: true });
}

/** Folders that are closed to us could not be emptied. */
async function openFolders(folder: Buffer): Promise<void> {
  const facts = await lstat(folder).catch(() => undefined);
  if (!facts?.isDirectory()) return;
  if ((facts.mode & 0o700) !== 0o700) await chmod(folder, 0o700);
  for (const entry of await readdir(folder, { withFileTypes: true, encoding: 'buffer' }))
    if (entry.isDirectory()) await openFolders(Buffer.concat([folder, Buffer.from('/'), entry.name]));
}
