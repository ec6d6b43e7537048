import { lstat, mkdir, utimes } from 'node:fs/promises';
import path from 'node:path';
import { WORKTREE_SLUG, type sandboxdPb } from '@margay/contracts';
import { AbortedError, FailedPreconditionError, InternalError, InvalidArgumentError } from '@margay/errors';
import { readPlain, replacePlain } from '../files/plain-file';
import { askGit, runGit, type GitEnd, type GitPlace } from './git';
import { FOLDER, folderOf, isClean, listedWorktrees, type Listed } from './worktree-list';

/** A working tree of a large repository is written file by file. */
const CHECKOUT_TIMEOUT_MS = 30_000;
/** From its folder, in the sandbox of its project: three folders up. In one of its own that leads to the root. */
const UP = '../../..';
/** git writes down anew where a worktree lies when this file is old; in a sandbox of its own it lies elsewhere. */
const NEVER_OLD = new Date('2100-01-01T00:00:00Z');

/** Working trees of the repository in the workspace, each for a branch, below `.margay/worktrees`. */
export class Worktrees {
  /** git locks parts of the repository; who comes meanwhile would be refused. */
  private last: Promise<unknown> = Promise.resolve();

  constructor(private readonly place: GitPlace) {}

  /**
   * @throws InvalidArgumentError `not_git`, `branch_unknown`, `bad_request`;
   *   AbortedError `branch_in_use`, `branch_exists`, `worktree_exists`
   */
  add(request: sandboxdPb.AddWorktreeRequest): Promise<sandboxdPb.AddWorktreeResponse> {
    return this.inTurn(() => this.addNow(request));
  }

  /** @throws FailedPreconditionError `worktree_dirty` */
  remove(request: sandboxdPb.RemoveWorktreeRequest): Promise<sandboxdPb.RemoveWorktreeResponse> {
    return this.inTurn(() => this.removeNow(request));
  }

  private async addNow({ slug, branch, base }: sandboxdPb.AddWorktreeRequest): Promise<sandboxdPb.AddWorktreeResponse> {
    if (!WORKTREE_SLUG.test(slug)) throw new InvalidArgumentError('bad_request', `'${slug}' cannot be a folder.`);
    await this.requireRepository();
    const half = (await this.find(slug))?.isHalfMade === true;
    if (half) await this.takeAway(slug);
    const listed = await listedWorktrees(this.place);
    const known = listed.find((worktree) => worktree.slug === slug);
    if (known && known.branch === branch) return { worktree: await this.settled(known), created: false };
    if (known) throw new AbortedError('worktree_exists', `${FOLDER}/${slug} has another branch: ${known.branch || known.head}.`); // prettier-ignore
    const user = listed.find((worktree) => worktree.branch === branch);
    if (user) throw new AbortedError('branch_in_use', `${branch} is checked out already, in ${user.path}.`);
    await this.checkOut({ slug, branch, base }, half);
    const made = await this.find(slug);
    if (!made) throw new InternalError('internal', `git made no worktree in ${FOLDER}/${slug}`);
    return { worktree: await this.settled(made), created: true };
  }

  private async checkOut({ slug, branch, base }: sandboxdPb.AddWorktreeRequest, isAgain: boolean): Promise<void> {
    const exists = await this.has(`refs/heads/${branch}`);
    if (base === '' && !exists)
      throw new InvalidArgumentError('branch_unknown', `there is no branch ${branch}; name a 'base' to make it from.`);
    // The first attempt may have got as far as the branch.
    if (base !== '' && exists && !isAgain)
      throw new AbortedError(
        'branch_exists',
        `there is a branch ${branch} already; leave 'base' away to check it out.`,
      );
    if (base !== '' && !(await this.has(`${base}^{commit}`)))
      throw new InvalidArgumentError('branch_unknown', `there is no branch or commit ${base} to begin at.`);
    const folder = path.join(this.place.root, FOLDER, slug);
    if (await lstat(folder).catch(() => undefined))
      throw new AbortedError('worktree_exists', `${FOLDER}/${slug} exists and is no worktree.`);
    await this.hideFolder();
    const words = exists ? [folder, branch] : ['-b', branch, folder, base];
    const end = await runGit(this.place, ['worktree', 'add', '--quiet', ...words], CHECKOUT_TIMEOUT_MS);
    if (!end.isDone) throw failed('made', slug, end);
  }

  private async removeNow(request: sandboxdPb.RemoveWorktreeRequest): Promise<sandboxdPb.RemoveWorktreeResponse> {
    const { slug, force, deleteBranch } = request;
    if (!WORKTREE_SLUG.test(slug)) throw new InvalidArgumentError('bad_request', `'${slug}' cannot be a folder.`);
    const known = await this.find(slug);
    if (!known) return { removed: false };
    if (!known.isHalfMade) await this.settled(known);
    if (!force && !known.isHalfMade && !(await isClean(this.place, known)))
      throw new FailedPreconditionError('worktree_dirty', `${known.branch || slug} has changes or commits that are nowhere else; store them, or force it.`); // prettier-ignore
    await this.takeAway(slug);
    if (deleteBranch && known.branch !== '') await runGit(this.place, ['branch', '--quiet', '-D', known.branch]);
    return { removed: true };
  }

  private async takeAway(slug: string): Promise<void> {
    const folder = path.join(this.place.root, FOLDER, slug);
    // Twice forced: it is locked, so that nobody prunes it from a sandbox that does not show it.
    const end = await runGit(this.place, ['worktree', 'remove', '--force', '--force', folder], CHECKOUT_TIMEOUT_MS);
    if (!end.isDone) throw failed('removed', slug, end);
  }

  /**
   * Makes it work in a sandbox of its own, too, which shows its folder as the workspace and the repository at `/.git`: it
   * finds the repository by a relative path, and neither git nor people prune it.
   */
  private async settled(worktree: Listed): Promise<sandboxdPb.Worktree> {
    const { slug, branch, head } = worktree;
    const folder = folderOf(this.place, worktree);
    const link = path.join(folder, '.git');
    const [, name] = /worktrees\/([^/\n]+)\s*$/.exec(await readPlain(link)) ?? [];
    if (name !== undefined) {
      const own = path.join(this.place.root, '.git/worktrees', name);
      await replacePlain(link, `gitdir: ${UP}/.git/worktrees/${name}\n`);
      await replacePlain(path.join(own, 'gitdir'), `${link}\n`);
      await replacePlain(path.join(own, 'locked'), 'margay\n');
      await utimes(path.join(own, 'gitdir'), NEVER_OLD, NEVER_OLD);
    }
    return { slug, path: folder, branch, head, clean: await isClean(this.place, worktree) };
  }

  /** The repository must lie in the workspace itself: one around it is not shown in sandboxes of worktrees. */
  private async requireRepository(): Promise<void> {
    const folder = await lstat(path.join(this.place.root, '.git')).catch(() => undefined);
    const told = folder?.isDirectory() === true && (await askGit(this.place, ['rev-parse', '--git-dir']));
    if (typeof told === 'string') return;
    throw new InvalidArgumentError('not_git', 'The project is no git repository, or only a part of one.');
  }

  /** The project's own working tree does not show them as new files. */
  private async hideFolder(): Promise<void> {
    const line = `/${FOLDER}/`;
    const file = path.join(this.place.root, '.git/info/exclude');
    const known = await readPlain(file);
    if (known.split('\n').includes(line)) return;
    await mkdir(path.dirname(file), { recursive: true });
    const end = known === '' || known.endsWith('\n') ? '' : '\n';
    await replacePlain(file, `${known}${end}${line}\n`);
  }

  private async find(slug: string): Promise<Listed | undefined> {
    return (await listedWorktrees(this.place)).find((worktree) => worktree.slug === slug);
  }

  private async has(name: string): Promise<boolean> {
    return (await askGit(this.place, ['rev-parse', '--verify', '--quiet', '--end-of-options', name])) !== undefined;
  }

  private inTurn<T>(work: () => Promise<T>): Promise<T> {
    const turn = this.last.then(work, work);
    this.last = turn.catch(() => undefined); // told to whoever asked for it
    return turn;
  }
}

function failed(done: string, slug: string, { words }: GitEnd): Error {
  return new InternalError('git_failed', `the worktree ${slug} could not be ${done}: ${words || 'git took too long'}`);
}
