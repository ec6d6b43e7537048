import { mkdir, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { NotFoundError } from '@margay/errors';
import type { Manifest } from '@margay/session';

const NAME = /^\d{8}T\d{6}Z$/;

export type FindManifest = (folder: string) => Promise<Manifest | undefined>;

/** Backups below one folder, each in a folder named for the second in which it began. */
export class BackupFolders {
  constructor(
    private readonly root: string,
    private readonly find: FindManifest,
  ) {}

  /** Where the next backup goes: on with the last one, where that was broken off. */
  async next(now: Date): Promise<string> {
    await mkdir(this.root, { recursive: true, mode: 0o700 });
    const last = (await this.list()).at(-1);
    if (last && (await this.find(last))?.finishedAt === undefined) return last;
    return join(this.root, now.toISOString().replace(/[-:]|\.\d+/g, ''));
  }

  /** The newest that was finished; or the folder itself, where it is a backup. @throws NotFoundError `backup_missing` */
  async newest(): Promise<string> {
    if (await this.find(this.root)) return this.root;
    const newest = (await this.finished()).at(-1);
    if (newest === undefined)
      throw new NotFoundError('backup_missing', `There is no finished backup in ${this.root}; name the folder that backups were written to.`); // prettier-ignore
    return newest;
  }

  /** Removes all but so many finished ones. @returns those removed */
  async prune(keep: number): Promise<string[]> {
    const surplus = (await this.finished()).slice(0, -keep);
    for (const folder of surplus) await rm(folder, { recursive: true });
    return surplus;
  }

  private async finished(): Promise<string[]> {
    const all = await this.list();
    const manifests = await Promise.all(all.map((folder) => this.find(folder)));
    return all.filter((_, index) => manifests[index]?.finishedAt !== undefined);
  }

  private async list(): Promise<string[]> {
    const names = await readdir(this.root);
    return names.filter((name) => NAME.test(name)).sort().map((name) => join(this.root, name)); // prettier-ignore
  }
}
