import { readFile, readdir, stat } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';

/** Set in the environment of everything a call starts, so that what left its process group is still found. */
export const CALL_MARKER = 'MARGAY_CALL_ID';

/** What the kernel counts in /proc, on every architecture. */
const TICKS_PER_SECOND = 100;
/** Whose children orphans become. */
const REAPER = 1;
const POLL_MS = 15;
const KILL_ROUNDS_MS = 800;

export interface ProcessFacts {
  pid: number;
  parent: number;
  group: number;
  session: number;
  /** Ticks since the machine started. */
  startedAt: number;
  isZombie: boolean;
}

/** Every process this one can see; empty where there is no /proc. */
export async function listProcesses(): Promise<ProcessFacts[]> {
  const names = await readdir('/proc').catch(() => []);
  const all = await Promise.all(names.filter((name) => /^\d+$/.test(name)).map(factsOf));
  return all.filter((facts) => facts !== undefined);
}

async function factsOf(pid: string): Promise<ProcessFacts | undefined> {
  const text = await readFile(`/proc/${pid}/stat`, 'latin1').catch(() => undefined);
  // The name in parentheses may hold spaces and parentheses.
  const fields = text?.slice(text.lastIndexOf(')') + 2).split(' ');
  if (!fields) return undefined;
  const [state, parent, group, session] = fields;
  return {
    // Fields are counted from 1 and the first two are cut off.
    startedAt: Number(fields[22 - 3]),
    pid: Number(pid),
    parent: Number(parent),
    group: Number(group),
    session: Number(session),
    isZombie: state === 'Z' || state === 'X',
  };
}

export interface TreeRoot {
  /** The leader of the group; absent = only the mark is known. */
  pid?: number;
  /** Value of `MARGAY_CALL_ID` in the environment of its descendants, or which values are meant. */
  marker: string | ((marker: string) => boolean);
  /**
   * Only where every process of this user belongs to the sandbox: what was started since and has lost its parent is meant too, even if
   * it left the session and cleared its environment.
   */
  orphansSince?: number;
}

/** The present in ticks since the machine started, as processes' start times are given. */
export async function ticksNow(): Promise<number> {
  const [seconds = '0'] = (await readFile('/proc/uptime', 'latin1').catch(() => '')).split(' ');
  return Math.floor(Number(seconds) * TICKS_PER_SECOND);
}

/** Living members of a call's tree: its group and session, all descendants, and whoever carries its mark. */
export async function treeMembers(root: TreeRoot): Promise<number[]> {
  const processes = (await listProcesses()).filter((facts) => !facts.isZombie && facts.pid !== process.pid);
  const members = new Set<number>();
  for (const facts of processes) {
    const isOwn = root.pid !== undefined && [facts.pid, facts.group, facts.session].includes(root.pid);
    if (isOwn || (await isMarked(root, facts))) members.add(facts.pid);
  }
  let grown = true;
  while (grown) {
    const children = processes.filter((facts) => members.has(facts.parent) && !members.has(facts.pid));
    for (const facts of children) members.add(facts.pid);
    grown = children.length > 0;
  }
  return [...members];
}

async function isMarked(root: TreeRoot, facts: ProcessFacts): Promise<boolean> {
  const mark = await markOf(facts.pid);
  if (mark === undefined) return isOrphanOf(root, facts);
  return typeof root.marker === 'string' ? mark === root.marker : root.marker(mark);
}

/** Of this user: where the sandbox has a user but not processes of its own, others are seen, too. */
async function isOrphanOf({ orphansSince }: TreeRoot, { pid, parent, startedAt }: ProcessFacts): Promise<boolean> {
  if (orphansSince === undefined || parent !== REAPER || startedAt < orphansSince) return false;
  const owner = await stat(`/proc/${pid}`).catch(() => undefined);
  return owner?.uid === process.getuid?.();
}

async function markOf(pid: number): Promise<string | undefined> {
  // Unreadable environments belong to other users.
  const environment = await readFile(`/proc/${pid}/environ`, 'latin1').catch(() => '');
  const name = `\0${CALL_MARKER}=`;
  const at = `\0${environment}`.indexOf(name);
  return at === -1 ? undefined : environment.slice(at + name.length - 1).split('\0', 1)[0];
}

/** TERM, then KILL after `graceMs`, to a call's whole tree; resolves when nothing of it lives. */
export async function killTree(root: TreeRoot, graceMs: number): Promise<void> {
  const graceEnds = performance.now() + graceMs;
  // Looked up before the first signal: children of a process that is gone are nobody's.
  let members = await treeMembers(root);
  signalAll(root, members, 'SIGTERM');
  while (members.length > 0 && performance.now() < graceEnds) {
    await delay(POLL_MS);
    members = await treeMembers(root);
  }
  // A fork bomb grows between two looks: repeat until nothing is found.
  const killEnds = performance.now() + KILL_ROUNDS_MS;
  while (members.length > 0 && performance.now() < killEnds) {
    signalAll(root, members, 'SIGKILL');
    await delay(POLL_MS);
    members = await treeMembers(root);
  }
}

function signalAll(root: TreeRoot, members: readonly number[], signal: NodeJS.Signals): void {
  if (root.pid !== undefined) send(-root.pid, signal);
  for (const pid of members) {
    send(pid, signal);
    // A stopped process takes TERM only when it goes on.
    if (signal === 'SIGTERM') send(pid, 'SIGCONT');
  }
}

function send(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    // It ended by itself, or changed its user.
    if (code !== 'ESRCH' && code !== 'EPERM') throw error;
  }
}
