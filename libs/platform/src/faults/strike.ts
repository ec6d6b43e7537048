import { setTimeout as delay } from 'node:timers/promises';
import { UnavailableError } from '@margay/errors';
import type { FaultAction } from './fault-plan';
import type { FaultPointName } from './fault-points';

/** Does what was planned for a point; all but `pause` before it returns. */
export function strike(point: FaultPointName, action: FaultAction): Promise<void> | undefined {
  switch (action.kind) {
    case 'kill':
      process.kill(process.pid, 'SIGKILL');
      return undefined;
    case 'stop':
      process.kill(process.pid, 'SIGSTOP');
      return undefined;
    case 'throw':
      throw new UnavailableError('fault_point', `The fault point ${point} failed, as this process was told to.`);
    case 'pause':
      return delay(action.ms);
    case 'block':
      return block(action.ms);
    case 'exhaust-memory':
      return exhaustMemory();
  }
}

function block(ms: number): undefined {
  // A wait that lets nothing else run, and burns no processor time.
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}

/** Ends the process at its heap limit; one without a limit would take the machine's memory with it. */
function exhaustMemory(): never {
  const hoard: number[][] = [];
  for (let n = 0; ; n += 1) hoard.push(new Array<number>(100_000).fill(n + 0.5));
}
