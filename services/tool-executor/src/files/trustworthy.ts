import { WORKTREE_SLUG } from '@margay/contracts';
import type { IndexContent } from './index-store';

const FILES_MAX = 50_000;
const LIST_MAX = 1_000;
const PATH_MAX_CHARS = 4_096;
const NAME_MAX_CHARS = 255;
// eslint-disable-next-line no-control-regex -- names with these are traps for whoever shows them
const CONTROL = /[\u0000-\u001f\u007f]/;

/** What leaves a sandbox is whatever somebody in it wanted to be said: here is as much of it as can be kept and shown. */
export function trustworthy(said: IndexContent): IndexContent {
  const paths = (list: readonly string[], most = LIST_MAX) =>
    list.filter((path) => isText(path, PATH_MAX_CHARS)).slice(0, most);
  const names = (list: readonly string[]) => list.filter((name) => isText(name, NAME_MAX_CHARS)).slice(0, LIST_MAX);
  const name = (text: string) => (isText(text, NAME_MAX_CHARS) ? text : '');
  return {
    files: paths(said.files, FILES_MAX),
    isGit: said.isGit,
    head: name(said.head),
    truncated: said.truncated || said.files.length > FILES_MAX,
    branches: names(said.branches),
    currentBranch: name(said.currentBranch),
    branchesInUse: names(said.branchesInUse),
    defaultBranch: name(said.defaultBranch),
    worktrees: said.worktrees.slice(0, LIST_MAX).map(({ slug, path, branch, head, clean }) => ({
      slug: WORKTREE_SLUG.test(slug) ? slug : '',
      path: isText(path, PATH_MAX_CHARS) ? path : '',
      branch: name(branch),
      head: name(head),
      clean,
    })),
    remoteHost: name(said.remoteHost),
    remoteOwner: name(said.remoteOwner),
    remoteName: name(said.remoteName),
    instructions: paths(said.instructions),
    skills: paths(said.skills),
    agents: paths(said.agents),
    policies: paths(said.policies),
    monitors: paths(said.monitors),
    mcpHash: name(said.mcpHash),
    mcpServers: names(said.mcpServers),
  };
}

function isText(text: string, maxChars: number): boolean {
  return text.length <= maxChars && !CONTROL.test(text);
}
