import { opendir, lstat } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { ContentOrder } from '@margay/contracts';
import { ContentFailure } from './content-failure';
import { failureOfGit, messageOf } from './git-words';
import { runGit, safeEnvironment, type GitEnd, type GitRun } from './run-git';

export interface CloneOptions {
  order: Extract<ContentOrder, { kind: 'clone' }>;
  /** An empty folder. */
  into: string;
  environment: Readonly<Record<string, string>>;
  /** The sandbox reaches the outside through a proxy alone, and has none. */
  hasNoWayOut: boolean;
  maxBytes: number;
  signal: AbortSignal;
  tell: (doing: string) => void;
}

const COMMIT = /^[0-9a-f]{40}$|^[0-9a-f]{64}$/;
const SIZE_EVERY_MS = 2_000;
const STEPS: readonly [RegExp, string][] = [
  [/Receiving objects/, 'receiving the repository'],
  [/Resolving deltas/, 'putting the repository together'],
  [/Updating files/, 'checking out the files'],
  [/Submodule|Cloning into/, 'cloning'],
];

/** Clones a repository. @returns the commit of its working tree; empty for one without commits. @throws ContentFailure */
export async function clone(options: CloneOptions): Promise<string> {
  const { order, into, signal, tell } = options;
  if (options.hasNoWayOut) throw new ContentFailure('egress_denied', messageOf('egress_denied'));
  const tooLarge = new AbortController();
  const done = new AbortController();
  const watched = watchSize(options, AbortSignal.any([done.signal, signal]), () => tooLarge.abort());
  const git: GitRun = {
    cwd: into,
    environment: safeEnvironment(options.environment),
    signal: AbortSignal.any([signal, tooLarge.signal]),
    onWords: stepsTo(tell),
  };
  try {
    tell('cloning');
    await fetchTree(order, git);
    if (order.lfs) await fetchLargeFiles(git, tell);
    const { isWell, out } = await runGit(['rev-parse', '--verify', '--quiet', 'HEAD'], git);
    return isWell ? out.trim() : '';
  } catch (error) {
    if (!signal.aborted && tooLarge.signal.aborted) throw new ContentFailure('too_large', messageOf('too_large'));
    throw error;
  } finally {
    done.abort();
    await watched;
  }
}

async function fetchTree({ url, ref, depth, submodules }: CloneOptions['order'], git: GitRun): Promise<void> {
  const shallow = depth === undefined ? [] : ['--depth', String(depth)];
  const isCommit = ref !== undefined && COMMIT.test(ref);
  const named = ref === undefined || isCommit ? [] : ['--branch', ref];
  const how = isCommit ? ['--no-checkout'] : named;
  await must(['clone', '--progress', '--no-local', '--template=', ...shallow, ...how, '--', url, '.'], git);
  if (isCommit) {
    await must(['fetch', '--progress', ...shallow, 'origin', ref], git);
    await must(['checkout', '--progress', '--detach', 'FETCH_HEAD'], git);
  }
  if (!submodules) return;
  const alike = depth === undefined ? [] : ['--depth', String(depth)];
  await must(['submodule', 'update', '--init', '--recursive', '--progress', ...alike], git);
}

/** The filter is set up for later commands of the workspace; its hooks are not. */
async function fetchLargeFiles(git: GitRun, tell: (doing: string) => void): Promise<void> {
  const { isWell } = await runGit(['lfs', 'version'], git);
  if (!isWell) throw new ContentFailure('lfs_unavailable', 'This sandbox has no git-lfs; choose an image with it.');
  tell('fetching large files');
  await must(['lfs', 'install', '--local', '--skip-repo'], git);
  await must(['lfs', 'pull'], git);
}

async function must(words: readonly string[], git: GitRun): Promise<GitEnd> {
  const end = await runGit(words, git);
  if (end.isWell) return end;
  throw failureOfGit(end.words);
}

/** Tells each step once. */
function stepsTo(tell: (doing: string) => void): (words: string) => void {
  let told = '';
  return (words) => {
    const step = STEPS.find(([sign]) => sign.test(words))?.[1];
    if (step === undefined || step === told) return;
    told = step;
    tell(step);
  };
}

/** Looks now and then how large it has become. */
async function watchSize(options: CloneOptions, over: AbortSignal, onTooLarge: () => void): Promise<void> {
  while (!over.aborted) {
    await delay(SIZE_EVERY_MS, undefined, { signal: over }).catch(() => undefined); // it is over
    if (!over.aborted && (await bytesBelow(options.into, options.maxBytes)) > options.maxBytes) return onTooLarge();
  }
}

/** Bytes of the files below a folder, counted up to a limit. */
export async function bytesBelow(folder: string, limit: number): Promise<number> {
  let bytes = 0;
  const folders = [folder];
  for (let at = folders.pop(); at !== undefined && bytes <= limit; at = folders.pop()) {
    const entries = await opendir(at).catch(() => undefined);
    if (!entries) continue; // gone meanwhile
    for await (const entry of entries) {
      const inside = path.join(at, entry.name);
      if (entry.isDirectory()) folders.push(inside);
      else bytes += (await lstat(inside).catch(() => undefined))?.size ?? 0;
    }
  }
  return bytes;
}
