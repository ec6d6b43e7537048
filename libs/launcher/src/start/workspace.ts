import { cp, mkdir, stat } from 'node:fs/promises';
import { basename, isAbsolute, join, relative, resolve } from 'node:path';
import { FailedPreconditionError, InvalidArgumentError } from '@margay/errors';

export interface WorkspaceChoice {
  home: string;
  /** Folder that `npm start` was called in. */
  calledIn: string;
  /** `--workspace`; without it the sample project is copied. */
  workspace?: string;
  isCopied: boolean;
  /** The sample project. */
  sample: string;
  /** Of this process; undefined where the system has none. */
  userId?: number;
  now?: () => Date;
}

/** The folder the agent works in. Copies lie under the home, where the tool executor hands them to the sandbox's user. */
export async function prepareWorkspace(choice: WorkspaceChoice): Promise<string> {
  if (choice.workspace === undefined) return copy(choice, choice.sample, 'sample');
  const folder = resolve(choice.calledIn, choice.workspace);
  const facts = await stat(folder).catch(() => undefined);
  if (!facts?.isDirectory())
    throw new InvalidArgumentError('workspace_missing', `--workspace ${folder} is not a folder`);
  if (choice.isCopied) return copy(choice, folder, basename(folder));
  // As root, sandboxes run under a user id of their own and could neither write such a folder nor be given it.
  if (choice.userId === 0 && facts.uid === 0) {
    const message = `${folder} belongs to root, and sandboxes never work as root. Add --workspace-copy to work in a copy, or give the folder to another user.`;
    throw new FailedPreconditionError('workspace_owned_by_root', message);
  }
  return folder;
}

async function copy({ home, now = () => new Date() }: WorkspaceChoice, source: string, name: string): Promise<string> {
  const within = relative(source, home);
  if (within === '' || !(within.startsWith('..') || isAbsolute(within))) {
    throw new InvalidArgumentError(
      'workspace_holds_home',
      `${source} cannot be copied into ${home}, which lies in it; name another --home`,
    );
  }
  const parent = join(home, 'workspaces');
  await mkdir(parent, { recursive: true, mode: 0o711 });
  const target = await newFolder(parent, `${name}-${stamp(now())}`);
  await cp(source, target, { recursive: true, verbatimSymlinks: true });
  return target;
}

async function newFolder(parent: string, name: string): Promise<string> {
  for (let attempt = 1; ; attempt++) {
    const target = join(parent, attempt === 1 ? name : `${name}-${attempt}`);
    try {
      await mkdir(target);
      return target;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    }
  }
}

function stamp(date: Date): string {
  return date.toISOString().slice(0, 19).replaceAll(/[-:]/g, '').replace('T', '-');
}
