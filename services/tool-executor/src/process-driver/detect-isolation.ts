import { spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync } from 'node:fs';
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { FailedPreconditionError } from '@margay/errors';
import type { Isolation } from '../driver/sandbox-driver';
import { INSIDE, Launcher } from './launcher';

export interface DetectOptions {
  isRoot: boolean;
  entry: string;
  wanted: Isolation | 'auto';
  /** Compiled code of the daemon, written here once and shown read-only to every sandbox. */
  cacheFolder: string;
}

export interface Detected {
  isolation: Isolation;
  launcher: Launcher;
  /** Why it is no better; absent with bubblewrap. */
  warning?: string;
}

const PROBE_USER = { uid: 29_999, gid: 29_999 };

/** Tries the daemon in bubblewrap, exactly as sandboxes will start; what fails decides what is left. */
export async function detectIsolation(options: DetectOptions): Promise<Detected> {
  const launcher = new Launcher({ ...options, canDisableUserNamespaces: canDisableUserNamespaces() });
  if (options.wanted === 'none' && options.isRoot) throw refuseRoot();
  if (options.wanted === 'uid' && !options.isRoot) throw refuseUid();
  if (options.wanted === 'auto' || options.wanted === 'bwrap') {
    const failure = await probe(launcher, options);
    if (failure === undefined) return { isolation: 'bwrap', launcher };
    if (options.wanted === 'bwrap') throw bubblewrapFailed(failure);
    return { ...weaker(options.isRoot, failure), launcher };
  }
  return { ...weaker(options.isRoot, `MARGAY_SANDBOX_ISOLATION is ${options.wanted}`), launcher };
}

function weaker(isRoot: boolean, why: string): Omit<Detected, 'launcher'> {
  const isolation = isRoot ? 'uid' : 'none';
  const means = isRoot
    ? 'commands run as a user of their own, but see the network and every file that is open to all'
    : 'commands run as you, and only file tools are held to the workspace';
  return { isolation, warning: `sandbox "${isolation}": ${means} (bubblewrap does not work here: ${why})` };
}

function canDisableUserNamespaces(): boolean {
  const help = spawnSync('bwrap', ['--help'], { encoding: 'utf8' });
  return (help.stdout ?? '').includes('--disable-userns');
}

/** Undefined when it works, else what was said. */
async function probe(launcher: Launcher, options: DetectOptions): Promise<string | undefined> {
  const folder = await mkdtemp(path.join(tmpdir(), 'margay-probe-'));
  const logFile = path.join(folder, 'log');
  mkdirSync(options.cacheFolder, { recursive: true, mode: 0o755 });
  try {
    mkdirSync(path.join(folder, 'workspace'));
    const { child } = await launcher.launch({
      isolation: 'bwrap',
      user: options.isRoot ? PROBE_USER : { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 },
      mounts: [
        { source: path.join(folder, 'workspace'), target: INSIDE.root, isReadOnly: false },
        { source: options.cacheFolder, target: INSIDE.cache, isReadOnly: false },
      ],
      bases: [path.join(folder, 'workspace'), options.cacheFolder],
      environment: { NODE_COMPILE_CACHE: INSIDE.cache },
      cgroups: [],
      logFile,
      nodeFlags: [],
      daemonArguments: ['--probe'],
    });
    child.ref();
    if (child.exitCode === null) await new Promise((resolve) => child.once('exit', resolve));
    return undefined;
  } catch {
    return lastLine(logFile);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function lastLine(file: string): string {
  return readFileSync(file, 'utf8').trim().split('\n').at(-1) || 'it is not installed';
}

function refuseRoot(): Error {
  return new FailedPreconditionError(
    'sandbox_isolation',
    "MARGAY_SANDBOX_ISOLATION=none is refused for root: a model's shell never runs as root. Use auto, bwrap or uid.",
  );
}

function refuseUid(): Error {
  return new FailedPreconditionError(
    'sandbox_isolation',
    'MARGAY_SANDBOX_ISOLATION=uid needs root, who alone can change users.',
  );
}

function bubblewrapFailed(why: string): Error {
  return new FailedPreconditionError('sandbox_isolation', `bubblewrap was demanded but does not work here: ${why}`);
}
