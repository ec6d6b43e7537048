import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync, readFileSync } from 'node:fs';
import { chmod, lstat, mkdtemp, readdir, rmdir } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { Readable, Writable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { UnavailableError } from '@margay/errors';
import { killTree } from '@margay/toolbox';
import type { Isolation } from '../driver/sandbox-driver';
import {
  AGENT_HOME,
  bubblewrapArguments,
  INFO_FD,
  SECCOMP_FD,
  stagedCommand,
  WORKSPACE,
  type Mount,
} from './bubblewrap';
import { identityOf, killAll } from './processes';
import type { User } from './sandbox-folder';
import type { ProcessIdentity } from './sandbox-records';
import { seccompFilter } from './seccomp';

export interface LaunchOptions {
  isolation: Isolation;
  user: User;
  /** Folders and files shown inside; outside bubblewrap their sources are used directly. */
  mounts: readonly Mount[];
  /** Folders that hold the sources. */
  bases: readonly string[];
  hostPath?: string;
  environment: Readonly<Record<string, string>>;
  cgroups: readonly string[];
  /** Where stderr of the daemon goes. */
  logFile: string;
  /** Copies of Node and the daemon that the sandbox's user can read; only outside bubblewrap. */
  program?: { node: string; entry: string };
  nodeFlags: readonly string[];
  daemonArguments: readonly string[];
}

export interface LauncherOptions {
  isRoot: boolean;
  entry: string;
  canDisableUserNamespaces: boolean;
}

export interface Launched {
  child: ChildProcess;
  /** The process this one started, and the first one inside, if it has its own numbering. */
  pids: number[];
}

const STAGE_PREFIX = 'margay-stage-';
/** A stage is needed for as long as a start takes. */
const STAGE_MAX_AGE_MS = 60_000;
const READY_TIMEOUT_MS = 20_000;
const LOG_TAIL_CHARS = 2_000;
const NODE = '/margay/bin/node';
const ENTRY = '/margay/lib/sandboxd.cjs';
/** The only variables the chain of starters sees; the daemon gets its own. */
const STARTER_ENVIRONMENT = { PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' };

/** Starts the daemon in its surroundings and waits until its socket is open. */
export class Launcher {
  constructor(private readonly options: LauncherOptions) {}

  async launch(launch: LaunchOptions): Promise<Launched> {
    const stage = await this.makeStage(launch);
    const log = openSync(launch.logFile, 'a', 0o600);
    try {
      const child = this.start(launch, stage, log);
      const inner = await this.untilReady(child, launch);
      // A running sandbox does not keep this process alive.
      child.unref();
      return { child, pids: [child.pid ?? 0, ...(inner === undefined ? [] : [inner])] };
    } finally {
      closeSync(log);
      if (stage !== undefined) await rmdir(stage);
    }
  }

  private start(launch: LaunchOptions, stage: string | undefined, log: number): ChildProcess {
    const options = {
      cwd: '/',
      detached: true,
      stdio: ['ignore', 'pipe', log, 'pipe'] as ('ignore' | 'pipe' | number)[],
    };
    const { user, environment, nodeFlags, daemonArguments } = launch;
    if (launch.isolation !== 'bwrap') {
      const drop = this.options.isRoot ? user : {};
      const { node, entry } = launch.program ?? { node: process.execPath, entry: this.options.entry };
      return spawn(node, [...nodeFlags, entry, ...daemonArguments], { ...options, ...drop, env: environment });
    }
    const filter = seccompFilter();
    const inside = {
      mounts: [
        ...launch.mounts,
        { source: process.execPath, target: NODE, isReadOnly: true },
        { source: this.options.entry, target: ENTRY, isReadOnly: true },
      ],
      environment,
      hasFilter: filter !== undefined,
      canDisableUserNamespaces: this.options.canDisableUserNamespaces,
      command: [NODE, ...nodeFlags, ENTRY, ...daemonArguments],
      ...(launch.hostPath === undefined ? {} : { hostPath: launch.hostPath }),
    };
    const [command = 'bwrap', ...argv] =
      stage === undefined
        ? ['bwrap', ...bubblewrapArguments(inside)]
        : stagedCommand({ ...inside, ...user, stage, cgroups: launch.cgroups, bases: this.basesOf(launch) });
    const stdio = [...options.stdio, 'pipe' as const];
    const child = spawn(command, argv, { ...options, stdio, env: STARTER_ENVIRONMENT });
    const filterEntry = child.stdio[SECCOMP_FD] as Writable;
    // A starter that fails early reads nothing; its end says so.
    filterEntry.on('error', () => undefined);
    filterEntry.end(filter);
    return child;
  }

  private basesOf(launch: LaunchOptions): string[] {
    return [...launch.bases, process.execPath, this.options.entry];
  }

  private async makeStage(launch: LaunchOptions): Promise<string | undefined> {
    if (launch.isolation !== 'bwrap' || !this.options.isRoot) return undefined;
    const stage = await mkdtemp(path.join(tmpdir(), STAGE_PREFIX));
    await chmod(stage, 0o755);
    return stage;
  }

  /** The number of the first process inside, once the daemon has said `ready`. */
  private async untilReady(child: ChildProcess, launch: LaunchOptions): Promise<number | undefined> {
    const timer = new AbortController();
    let inner: ProcessIdentity | undefined;
    const failed = async (what: string): Promise<never> => {
      // With the first process inside all others of its numbering end.
      if (inner !== undefined) await killAll([inner]);
      if (child.pid !== undefined) await killTree({ pid: child.pid, marker: launch.logFile }, 0);
      const tail = readFileSync(launch.logFile, 'utf8').slice(-LOG_TAIL_CHARS).trim();
      throw new UnavailableError('sandbox_start_failed', `The sandbox ${what}. Its log ends: ${tail || '(empty)'}`);
    };
    const ended = new Promise<never>((_, reject) => {
      child.once('error', reject);
      // Unlike `exit`, `close` comes after everything that was said.
      child.once('close', (code, signal) => reject(new Error(`ended with ${signal ?? `code ${code}`}`)));
    });
    const late = delay(READY_TIMEOUT_MS, undefined, { signal: timer.signal }).then(() => {
      throw new Error(`was not ready within ${READY_TIMEOUT_MS / 1_000} s`);
    });
    try {
      const ready = once(child.stdout as Readable, 'data');
      const isBoxed = launch.isolation === 'bwrap';
      const info = isBoxed ? innerPid(child.stdio[INFO_FD] as Readable).then(identityOf) : undefined;
      const known = info?.then((identity) => (inner = identity));
      await Promise.race([Promise.all([ready, known]), ended, late]);
      return inner?.pid;
    } catch (error) {
      return await failed((error as Error).message);
    } finally {
      for (const promise of [ended, late]) promise.catch(() => undefined); // the race has its winner
      timer.abort();
      child.stdout?.destroy();
      for (const extra of child.stdio.slice(INFO_FD)) extra?.destroy();
    }
  }
}

/** Removes the stages of starts that a crash cut off; outside the namespace of such a start they are empty. */
export async function removeStages(): Promise<void> {
  const names = (await readdir(tmpdir())).filter((name) => name.startsWith(STAGE_PREFIX));
  for (const stage of names.map((name) => path.join(tmpdir(), name))) {
    const facts = await lstat(stage).catch(() => undefined);
    const isOld = facts?.isDirectory() && Date.now() - facts.mtimeMs > STAGE_MAX_AGE_MS;
    if (isOld) await rmdir(stage).catch(() => undefined); // somebody else's
  }
}

/** bubblewrap writes in pieces and would be killed if the reader left after the first one: read to the end. */
async function innerPid(info: Readable): Promise<number> {
  let text = '';
  for await (const chunk of info) text += String(chunk);
  const match = /"child-pid": (\d+)/.exec(text);
  if (!match) throw new Error('bubblewrap did not tell its first process');
  return Number(match[1]);
}

/** Paths as the daemon sees them. */
export const INSIDE = {
  root: WORKSPACE,
  home: AGENT_HOME,
  run: '/margay/run',
  state: '/margay/state',
  results: '/margay/results',
  attachments: '/margay/attachments',
  trust: '/margay/trust.pem',
  egress: '/margay/egress',
  authority: '/margay/ca.pem',
  cache: '/margay/cache',
} as const;
