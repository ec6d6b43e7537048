import { readFile, readdir, stat } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import type { ProcessIdentity } from './sandbox-records';

const POLL_MS = 10;

export async function identityOf(pid: number): Promise<ProcessIdentity | undefined> {
  const text = await readFile(`/proc/${pid}/stat`, 'latin1').catch(() => undefined);
  const fields = text?.slice(text.lastIndexOf(')') + 2).split(' ');
  // Fields are counted from 1 and the first two are cut off.
  const startedAt = fields?.[22 - 3];
  if (startedAt === undefined || fields?.[0] === 'Z') return undefined;
  return { pid, startedAt };
}

export async function isAlive(identity: ProcessIdentity): Promise<boolean> {
  return (await identityOf(identity.pid))?.startedAt === identity.startedAt;
}

/** Resolves true when all are gone, false when the time is up. */
export async function areGone(identities: readonly ProcessIdentity[], withinMs: number): Promise<boolean> {
  const end = performance.now() + withinMs;
  for (;;) {
    const alive = await Promise.all(identities.map(isAlive));
    if (!alive.includes(true)) return true;
    if (performance.now() >= end) return false;
    await delay(POLL_MS);
  }
}

/** KILL to those of them that still are who they were. */
export async function killAll(identities: readonly ProcessIdentity[]): Promise<void> {
  for (const identity of identities) {
    if (await isAlive(identity)) send(identity.pid);
  }
}

/** KILL to everything a user runs; only for the driver's own users. */
export async function killUser(uid: number): Promise<void> {
  for (const { pid, uid: owner } of await listOwners()) {
    if (owner === uid) send(pid);
  }
}

/** Users that run something at this moment. */
export async function activeUids(): Promise<Set<number>> {
  return new Set((await listOwners()).map(({ uid }) => uid));
}

async function listOwners(): Promise<{ pid: number; uid: number }[]> {
  const names = (await readdir('/proc').catch(() => [])).filter((name) => /^\d+$/.test(name));
  const owners = names.map(async (name) => {
    const facts = await stat(`/proc/${name}`).catch(() => undefined);
    return facts ? [{ pid: Number(name), uid: facts.uid }] : [];
  });
  return (await Promise.all(owners)).flat();
}

function send(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}
