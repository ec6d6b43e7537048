import { chmod, lstat, lutimes, mkdir, readdir, rename, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { placeOf, RESTORE_FOLDER } from './tree';

const IN_THE_WAY = new Set(['ENOTEMPTY', 'EEXIST', 'EISDIR', 'ENOTDIR']);
const BEAT_MS = 1_000;
const LOOK_MS = 250;
/** Longer than a daemon at work ever stands still. */
const STILL_MS = 15_000;
/** Commands could make a beat, too; nobody waits for that for ever. */
const WAIT_MAX_MS = 600_000;

/** Beside the files of the workspace, on the same file system: there they can change places at once. */
export class Swap {
  /** Where the new files are made. */
  readonly fresh: string;
  private readonly folder: string;
  private readonly old: string;
  /** All old files have been moved away: what lies in the workspace is new. */
  private readonly halfway: string;
  private readonly done: string;
  /** Touched all the time by the daemon that is at it: others may share the volume. */
  private readonly beat: string;
  private beating?: NodeJS.Timeout;

  constructor(private readonly root: string) {
    this.folder = path.join(root, RESTORE_FOLDER);
    [this.fresh, this.old, this.halfway, this.done, this.beat] = ['new', 'old', 'halfway', 'done', 'beat'].map((name) =>
      path.join(this.folder, name),
    ) as [string, string, string, string, string];
  }

  /** Puts right what a crash left: the old files come back, unless all the new ones were in their place. */
  async recover(): Promise<void> {
    // Whoever works there may have put something else into our place.
    if ((await isFolder(this.folder)) && !(await exists(this.done))) await this.putBack();
    await this.discard();
  }

  /** Whether some daemon is at it, or was when it was killed. */
  async hasBeat(): Promise<boolean> {
    return (await this.lastBeat()) !== undefined;
  }

  /** The same once the daemon that was at it is done, or has stood still for so long that it is none any more. */
  async recoverOnceStill(stillMs = STILL_MS): Promise<void> {
    let seen = await this.lastBeat();
    let sinceMs = performance.now();
    const giveUpMs = sinceMs + WAIT_MAX_MS;
    while (seen !== undefined && performance.now() < Math.min(sinceMs + stillMs, giveUpMs)) {
      await delay(LOOK_MS, undefined, { ref: false });
      const last = await this.lastBeat();
      if (last !== seen) sinceMs = performance.now();
      seen = last;
    }
    await this.recover();
  }

  /** Nobody else may be at it: whatever is there is put right first. */
  async begin(): Promise<void> {
    await this.recover();
    await mkdir(this.folder, { recursive: true, mode: 0o700 });
    await writeFile(this.beat, '');
    await mkdir(this.fresh, { mode: 0o700 });
    this.beating = setInterval(() => void this.touch(), BEAT_MS).unref();
  }

  /** The new files take the place of all others; if that fails, `end` brings the old ones back. */
  async commit(): Promise<void> {
    await mkdir(this.old, { mode: 0o700 });
    await moveAll(this.root, this.old);
    await writeFile(this.halfway, '');
    await moveAll(this.fresh, this.root);
    await writeFile(this.done, '');
  }

  /** Removes what is not needed any more. @throws with the old files in our folder where they could not come back */
  async end(): Promise<void> {
    try {
      await this.recover();
    } finally {
      clearInterval(this.beating);
    }
  }

  private async touch(): Promise<void> {
    const now = new Date();
    await lutimes(this.beat, now, now).catch(() => undefined); // it is gone at the end
  }

  private async lastBeat(): Promise<number | undefined> {
    return lstat(this.beat).then(
      ({ mtimeMs }) => mtimeMs,
      () => undefined, // or it cannot be seen, which is the same here
    );
  }

  /** May break off anywhere and begin again. */
  private async putBack(): Promise<void> {
    if (!(await isFolder(this.old))) return;
    if (await exists(this.halfway)) {
      if (!(await isFolder(this.fresh))) await clear(this.fresh);
      await mkdir(this.fresh, { recursive: true, mode: 0o700 });
      await moveAll(this.root, this.fresh);
      // From here on what lies in the workspace is old: it must not be moved away a second time.
      await clear(this.halfway);
    }
    await moveAll(this.old, this.root);
  }

  /** The mark goes last: without it what is left of the old files would come back. */
  private async discard(): Promise<void> {
    if (await isFolder(this.folder))
      for (const part of [this.old, this.fresh, this.halfway, this.done]) await clear(part);
    await clear(this.folder);
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
  await rename(source, target).catch(async (error: NodeJS.ErrnoException) => {
    if (!IN_THE_WAY.has(error.code ?? '')) throw error;
    // Commands run on, and made something of that name while it was away.
    await clear(target);
    await rename(source, target);
  });
  if (isClosed) await chmod(target, facts.mode & 0o7777);
}

async function exists(file: string): Promise<boolean> {
  return lstat(file).then(
    () => true,
    () => false, // or it cannot be seen, which is the same here
  );
}

/** A link is no folder, wherever it leads. */
async function isFolder(file: string): Promise<boolean> {
  return lstat(file).then(
    (facts) => facts.isDirectory(),
    () => false, // or it cannot be seen, which is the same here
  );
}

async function clear(file: string | Buffer): Promise<void> {
  await openFolders(Buffer.from(file));
  await rm(file, { recursive: true, force: true });
}

/** Folders that are closed to us could not be emptied. */
async function openFolders(folder: Buffer): Promise<void> {
  const facts = await lstat(folder).catch(() => undefined);
  if (!facts?.isDirectory()) return;
  if ((facts.mode & 0o700) !== 0o700) await chmod(folder, 0o700);
  for (const entry of await readdir(folder, { withFileTypes: true, encoding: 'buffer' }))
    if (entry.isDirectory()) await openFolders(Buffer.concat([folder, Buffer.from('/'), entry.name]));
}
