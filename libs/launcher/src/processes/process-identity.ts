import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { promisify } from 'node:util';

const execFileAsync = promisify(execFile);

export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

/**
 * A word that tells a process from a later one with the same number: its start time.
 * Undefined when there is no such process (a zombie counts as gone).
 */
export async function findIdentity(pid: number): Promise<string | undefined> {
  if (!isAlive(pid)) return undefined;
  return process.platform === 'linux' ? linuxStartTime(pid) : psStartTime(pid);
}

async function linuxStartTime(pid: number): Promise<string | undefined> {
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => undefined);
  // The command in parentheses may hold spaces, so count the fields behind it.
  const fields = stat?.slice(stat.lastIndexOf(')') + 2).split(' ');
  return fields && fields[0] !== 'Z' ? fields[19] : undefined;
}

async function psStartTime(pid: number): Promise<string | undefined> {
  const result = await execFileAsync('ps', ['-o', 'lstart=', '-p', String(pid)]).catch(() => undefined);
  return result?.stdout.trim() || undefined;
}
