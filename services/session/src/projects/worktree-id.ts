import { WORKTREE_SLUG } from '@margay/contracts';
import { managedIdIn } from './managed-projects';

/** What the id of a worktree says; it is also how bindings name it. */
export interface WorktreeName {
  /** How bindings name its project. */
  parent: string;
  slug: string;
}

const ID = /^wt:(.+):([^:]+)$/;
const MANAGED_ID = /^[0-9a-f]{32}$/;
const SLUG_MAX_CHARS = 56;

/** `wt:<parent>:<slug>`: the same for the same branch. */
export function worktreeIdOf({ parent, slug }: WorktreeName): string {
  return `wt:${managedIdIn(parent) ?? parent}:${slug}`;
}

export function parseWorktreeId(id: string): WorktreeName | undefined {
  const [, parent = '', slug = ''] = ID.exec(id) ?? [];
  if (!WORKTREE_SLUG.test(slug)) return undefined;
  return { parent: MANAGED_ID.test(parent) ? `managed:${parent}` : parent, slug };
}

/** Name of the folder for a branch; undefined where none can be made of it. */
export function slugOf(branch: string): string | undefined {
  const slug = branch.replace(/[^A-Za-z0-9._-]+/g, '-').slice(0, SLUG_MAX_CHARS);
  return WORKTREE_SLUG.test(slug) ? slug : undefined;
}
