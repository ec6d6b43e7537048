import type { ChildProcess } from 'node:child_process';

/** What must not outlive this process, however it ends (SIGKILL apart): signal targets by child. */
const children = new Map<ChildProcess, number>();
let isHooked = false;

/** Ends the child (with `isGroup` its whole process group) when this process exits before it did. */
export function endWithUs(child: ChildProcess, isGroup: boolean): void {
  if (child.pid === undefined) return;
  if (!isHooked) process.once('exit', endAll);
  isHooked = true;
  children.set(child, isGroup ? -child.pid : child.pid);
  child.once('exit', () => children.delete(child));
}

function endAll(): void {
  for (const target of children.values()) signalQuietly(target, 'SIGKILL');
}

/** ESRCH only says that the process is gone already, which is what a signal is for. */
export function signalQuietly(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}
