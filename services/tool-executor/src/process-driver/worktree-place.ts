import { constants } from 'node:fs';
import { open, type FileHandle } from 'node:fs/promises';
import path from 'node:path';
import { FailedPreconditionError } from '@margay/errors';
import type { User } from './sandbox-folder';

/** A worktree within the folder of its project. */
export interface WorktreePlace {
  folder: string;
  /** The project's repository, which the worktree cannot do without. */
  repository: string;
  owner: User;
  /** Which folders these are, by path; whoever shows them makes sure that they still are. */
  identities: Record<'folder' | 'repository', string>;
}

const FOLDER = ['.margay', 'worktrees'];

/**
 * Where a worktree lies. Agents can change everything in the folder of their project, so no link is followed on the way.
 * @throws FailedPreconditionError `workspace_missing`
 */
export async function placeOfWorktree(project: string, slug: string): Promise<WorktreePlace> {
  const tree = await identify(project, [...FOLDER, slug]);
  const repository = await identify(project, ['.git']);
  if (!tree || !repository)
    throw new FailedPreconditionError('workspace_missing', `There is no worktree ${slug} in its project any more.`);
  return {
    folder: path.join(project, ...FOLDER, slug),
    repository: path.join(project, '.git'),
    owner: tree.owner,
    identities: { folder: tree.id, repository: repository.id },
  };
}

/** Undefined where one of the names is no folder, but a link, for one. */
async function identify(base: string, names: readonly string[]): Promise<{ id: string; owner: User } | undefined> {
  const handles: FileHandle[] = [];
  try {
    handles.push(await open(base, constants.O_RDONLY | constants.O_DIRECTORY));
    for (const name of names) {
      const { fd } = handles.at(-1) as FileHandle;
      handles.push(await open(`/proc/self/fd/${fd}/${name}`, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW)); // prettier-ignore
    }
    const { dev, ino, uid, gid } = await (handles.at(-1) as FileHandle).stat();
    return { id: `${dev}:${ino}`, owner: { uid, gid } };
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'ENOTDIR' || code === 'ELOOP') return undefined;
    throw error;
  } finally {
    await Promise.all(handles.map((handle) => handle.close()));
  }
}
