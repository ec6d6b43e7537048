import { EXIT } from './messages';

/** How a process ended without saying so. */
export interface Death {
  code: number | null;
  signal: NodeJS.Signals | null;
}

/** Exit code of a shell's kind for an abort, where a wrapper turned the signal into one. */
const ABORTED = 134;

/** Words for people: what probably happened to the process of a run. */
export function describeDeath(
  { code, signal }: Death,
  { heapMb, wasSilent }: { heapMb: number; wasSilent: boolean },
): string {
  if (wasSilent) return 'its process did not answer any more and was ended';
  if (code === EXIT.memory) return `its process took too much memory beside its heap of ${heapMb} MB`;
  if (signal === 'SIGABRT' || code === ABORTED)
    return `its process was aborted, most likely at its heap limit of ${heapMb} MB`;
  if (signal === 'SIGKILL') return 'its process was killed by SIGKILL, perhaps by the system for want of memory';
  return signal === null ? `its process exited with code ${code}` : `its process was ended by ${signal}`;
}
