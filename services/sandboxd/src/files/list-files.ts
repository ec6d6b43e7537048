import { opendir } from 'node:fs/promises';
import path from 'node:path';
import type { sandboxdPb } from '@margay/contracts';
import { askGit, type GitPlace } from '../git/git';
import { remoteOf } from '../git/remote';
import { listedWorktrees, otherWorktrees } from '../git/worktree-list';
import { knownFiles } from './known-files';

const BRANCHES_MAX = 1_000;
const DEPTH_MAX = 12;
const FOLDERS_MAX = 20_000;
/** Not looked into where git says nothing of what matters. */
const SKIPPED = new Set(['.git', 'node_modules', '.margay', '__pycache__', '.venv']);

type Repository = Omit<sandboxdPb.ListFilesResponse, 'files' | 'isGit' | 'truncated' | keyof Awaited<ReturnType<typeof knownFiles>>>; // prettier-ignore

const NO_REPOSITORY: Repository = {
  ...{ head: '', currentBranch: '', branches: [], branchesInUse: [], defaultBranch: '', worktrees: [] },
  ...{ remoteHost: '', remoteOwner: '', remoteName: '' },
};

export interface ListOptions extends GitPlace {
  limit: number;
}

/** Paths below the root, relative and sorted: what git tracks or does not ignore, else what a bounded walk finds. */
export async function listFiles(options: ListOptions): Promise<sandboxdPb.ListFilesResponse> {
  const tracked = await gitFiles(options);
  const found = tracked ?? (await walk(options.root, options.limit));
  const all = [...new Set(found)].filter(isShowable).sort();
  const files = all.slice(0, options.limit);
  const [repository, known] = await Promise.all([
    tracked === undefined ? NO_REPOSITORY : repositoryOf(options),
    knownFiles(options.root, files),
  ]);
  return { files, isGit: tracked !== undefined, ...repository, ...known, truncated: all.length > options.limit };
}

/** Undefined where the root is in no repository, or there is no git. */
async function gitFiles(options: ListOptions): Promise<string[] | undefined> {
  const listed = await askGit(options, ['ls-files', '-z', '--cached', '--others', '--exclude-standard']);
  if (listed === undefined) return undefined;
  const deleted = new Set(((await askGit(options, ['ls-files', '-z', '--deleted'])) ?? '').split('\0'));
  return listed.split('\0').filter((file) => file !== '' && !deleted.has(file));
}

async function repositoryOf(place: GitPlace): Promise<Repository> {
  const [head, current, branches, origin, remote, listed] = await Promise.all([
    askGit(place, ['rev-parse', '--verify', '--quiet', 'HEAD']),
    askGit(place, ['symbolic-ref', '--quiet', '--short', 'HEAD']),
    askGit(place, ['for-each-ref', `--count=${BRANCHES_MAX}`, '--format=%(refname:lstrip=2)', 'refs/heads']),
    askGit(place, ['symbolic-ref', '--quiet', '--short', 'refs/remotes/origin/HEAD']),
    remoteOf(place),
    listedWorktrees(place),
  ]);
  return {
    head: (head ?? '').trim(),
    currentBranch: (current ?? '').trim(),
    branches: (branches ?? '').split('\n').filter((branch) => branch !== ''),
    branchesInUse: [...new Set(listed.map(({ branch }) => branch).filter((branch) => branch !== ''))],
    defaultBranch: (origin ?? '').trim().replace(/^origin\//, ''),
    worktrees: await otherWorktrees(place, listed),
    ...{ remoteHost: remote.host, remoteOwner: remote.owner, remoteName: remote.name },
  };
}

async function walk(root: string, limit: number): Promise<string[]> {
  const found: string[] = [];
  let folders: { at: string; depth: number }[] = [{ at: '', depth: 0 }];
  let seen = 0;
  while (folders.length > 0 && found.length <= limit && seen < FOLDERS_MAX) {
    const next: typeof folders = [];
    for (const { at, depth } of folders) {
      seen += 1;
      if (found.length > limit || seen > FOLDERS_MAX) break;
      for (const { name, isFolder } of await entriesOf(path.join(root, at))) {
        const inside = at === '' ? name : `${at}/${name}`;
        if (!isFolder) found.push(inside);
        else if (depth < DEPTH_MAX && !SKIPPED.has(name)) next.push({ at: inside, depth: depth + 1 });
      }
    }
    folders = next;
  }
  return found;
}

/** Links are shown as files and never followed; a folder that cannot be read is empty. */
async function entriesOf(folder: string): Promise<{ name: string; isFolder: boolean }[]> {
  const entries: { name: string; isFolder: boolean }[] = [];
  try {
    for await (const entry of await opendir(folder)) {
      if (entry.isDirectory()) entries.push({ name: entry.name, isFolder: true });
      else if (entry.isFile() || entry.isSymbolicLink()) entries.push({ name: entry.name, isFolder: false });
    }
  } catch {
    return entries; // gone meanwhile, or closed to us
  }
  return entries;
}

/** Names with control characters are traps for whoever shows them. */
function isShowable(file: string): boolean {
  // eslint-disable-next-line no-control-regex -- these are what is looked for
  return !/[\u0000-\u001f\u007f]/.test(file);
}
