import type { sandboxdPb } from '@margay/contracts';
import { askGit, type GitPlace } from './git';

export interface Listed {
  /** As git knows it. */
  path: string;
  head: string;
  /** Empty where none is checked out. */
  branch: string;
  /** Name of its folder below `.margay/worktrees`; empty for others. */
  slug: string;
  /** Its making broke off. */
  isHalfMade: boolean;
}

export const FOLDER = '.margay/worktrees';

const OURS = /\/\.margay\/worktrees\/([^/]+)$/;
/** Looking for changes in each costs a moment. */
const JUDGED_MAX = 50;

/** All working trees of the repository; the first one is its own. */
export async function listedWorktrees(place: GitPlace): Promise<Listed[]> {
  const told = (await askGit(place, ['worktree', 'list', '--porcelain'])) ?? '';
  return told
    .split('\n\n')
    .filter((block) => block.startsWith('worktree '))
    .map(parsed);
}

function parsed(block: string): Listed {
  const lines = block.split('\n');
  const valueOf = (word: string) => lines.find((line) => line.startsWith(`${word} `))?.slice(word.length + 1) ?? '';
  const path = valueOf('worktree');
  return {
    path,
    head: valueOf('HEAD'),
    branch: valueOf('branch').replace(/^refs\/heads\//, ''),
    slug: OURS.exec(path)?.[1] ?? '',
    isHalfMade: valueOf('locked') === 'initializing',
  };
}

/** Those beside the repository's own, and whether something would be lost with them. */
export async function otherWorktrees(place: GitPlace, listed: readonly Listed[]): Promise<sandboxdPb.Worktree[]> {
  const others = listed.slice(1).filter(({ isHalfMade }) => !isHalfMade);
  return Promise.all(
    others.map(async (worktree, index) => ({
      slug: worktree.slug,
      path: worktree.path,
      branch: worktree.branch,
      head: worktree.head,
      clean: index < JUDGED_MAX && (await isClean(place, worktree)),
    })),
  );
}

/**
 * Nothing would be lost with it: no changes, and no commits that lie nowhere else. With an upstream that must have them;
 * without one any remote, other branch or tag (ext §10.6).
 */
export async function isClean(place: GitPlace, worktree: Listed): Promise<boolean> {
  const { branch, head } = worktree;
  const changes = await askGit({ ...place, root: folderOf(place, worktree) }, ['status', '--porcelain', '--ignore-submodules=none']); // prettier-ignore
  if (changes === undefined || changes !== '') return false;
  const upstream = branch === '' ? undefined : await askGit(place, ['rev-parse', '--verify', '--quiet', `${branch}@{upstream}`]); // prettier-ignore
  const ahead =
    upstream === undefined
      ? await askGit(place, ['rev-list', '--count', head, '--not', `--exclude=${branch}`, '--branches', '--remotes', '--tags']) // prettier-ignore
      : await askGit(place, ['rev-list', '--count', `${upstream.trim()}..${head}`]);
  return ahead?.trim() === '0';
}

/** One of ours lies where its name says, whatever git was told. */
export function folderOf({ root }: GitPlace, { slug, path }: Listed): string {
  return slug === '' ? path : `${root}/${FOLDER}/${slug}`;
}
