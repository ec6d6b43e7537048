import { execFile } from 'node:child_process';
import { opendir } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import type { sandboxdPb } from '@margay/contracts';

const run = promisify(execFile);

const GIT_TIMEOUT_MS = 10_000;
/** Some 400,000 paths. */
const GIT_MAX_BYTES = 32 * 1024 * 1024;
const BRANCHES_MAX = 1_000;
const DEPTH_MAX = 12;
const FOLDERS_MAX = 20_000;
/** Not looked into where git says nothing of what matters. */
const SKIPPED = new Set(['.git', 'node_modules', '.margay', '__pycache__', '.venv']);
/** The repository's own settings must not start programs for the sake of a list. */
const SAFE = ['-c', 'core.fsmonitor=false', '-c', 'core.hooksPath=/dev/null'];

const NO_REPOSITORY = { head: '', currentBranch: '', branches: [] as string[], branchesInUse: [] as string[] };

export interface ListOptions {
  root: string;
  limit: number;
  /** The whole environment of git. */
  environment: Readonly<Record<string, string>>;
}

/** Paths below the root, relative and sorted: what git tracks or does not ignore, else what a bounded walk finds. */
export async function listFiles(options: ListOptions): Promise<sandboxdPb.ListFilesResponse> {
  const tracked = await gitFiles(options);
  const found = tracked ?? (await walk(options.root, options.limit));
  const files = [...new Set(found)].filter(isShowable).sort();
  return {
    files: files.slice(0, options.limit),
    isGit: tracked !== undefined,
    ...(tracked === undefined ? NO_REPOSITORY : await repositoryOf(options)),
    truncated: files.length > options.limit,
  };
}

/** Undefined where the root is in no repository, or there is no git. */
async function gitFiles(options: ListOptions): Promise<string[] | undefined> {
  const listed = await git(options, ['ls-files', '-z', '--cached', '--others', '--exclude-standard']);
  if (listed === undefined) return undefined;
  const deleted = new Set(((await git(options, ['ls-files', '-z', '--deleted'])) ?? '').split('\0'));
  return listed.split('\0').filter((file) => file !== '' && !deleted.has(file));
}

async function repositoryOf(options: ListOptions): Promise<typeof NO_REPOSITORY> {
  const [head, current, branches, worktrees] = await Promise.all([
    git(options, ['rev-parse', '--verify', '--quiet', 'HEAD']),
    git(options, ['symbolic-ref', '--quiet', '--short', 'HEAD']),
    git(options, ['for-each-ref', `--count=${BRANCHES_MAX}`, '--format=%(refname:lstrip=2)', 'refs/heads']),
    git(options, ['worktree', 'list', '--porcelain']),
  ]);
  const used = [...(worktrees ?? '').matchAll(/^branch refs\/heads\/(.+)$/gm)].map(([, branch = '']) => branch);
  return {
    head: (head ?? '').trim(),
    currentBranch: (current ?? '').trim(),
    branches: (branches ?? '').split('\n').filter((branch) => branch !== ''),
    branchesInUse: [...new Set(used)],
  };
}

async function git({ root, environment }: ListOptions, words: string[]): Promise<string | undefined> {
  const settings = { ...environment, GIT_OPTIONAL_LOCKS: '0', GIT_TERMINAL_PROMPT: '0' };
  const options = { cwd: root, env: settings, timeout: GIT_TIMEOUT_MS, maxBuffer: GIT_MAX_BYTES };
  // It fails outside repositories and where it is not installed: the walk serves then.
  return run('git', [...SAFE, ...words], options).then(
    ({ stdout }) => stdout,
    () => undefined,
  );
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
