// What processes cost, from /proc: only on Linux.
import { readdirSync, readFileSync } from 'node:fs';

/** Linux counts process time in hundredths of a second for every reader of /proc. */
const TICK_MS = 10;

/** `{ parent, cpuMs, reapedMs }` of a process: its own CPU time, and that of children it has waited for. */
function statOf(pid) {
  const text = readFileSync(`/proc/${pid}/stat`, 'latin1');
  // The name stands in parentheses and may hold anything: fields are counted behind it.
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
  const sum = (first, second) => (Number(fields[first]) + Number(fields[second])) * TICK_MS;
  return { parent: Number(fields[1]), cpuMs: sum(11, 12), reapedMs: sum(13, 14) };
}

function tryStatOf(pid) {
  try {
    return statOf(pid);
  } catch {
    return undefined; // it ended while the list was read
  }
}

/** Pids below a process, at any depth. */
export function descendantsOf(pid) {
  const parents = new Map();
  for (const name of readdirSync('/proc')) {
    const stat = /^\d+$/.test(name) ? tryStatOf(name) : undefined;
    if (stat) parents.set(Number(name), stat.parent);
  }
  const isBelow = (candidate) => {
    const parent = parents.get(candidate);
    return parent !== undefined && parent > 1 && (parent === pid || isBelow(parent));
  };
  return [...parents.keys()].filter(isBelow);
}

/** CPU milliseconds so far of a process alone, and of all below it, gone ones included. */
export function cpuOf(pid) {
  const own = statOf(pid);
  const below = descendantsOf(pid).map((child) => tryStatOf(child) ?? { cpuMs: 0, reapedMs: 0 });
  return {
    ownMs: own.cpuMs,
    belowMs: own.reapedMs + below.reduce((sum, { cpuMs, reapedMs }) => sum + cpuMs + reapedMs, 0),
  };
}

/** Resident memory in MB, now and at most. */
export function memoryOf(pid) {
  const status = readFileSync(`/proc/${pid}/status`, 'latin1');
  const field = (name) => Number(new RegExp(`${name}:\\s+(\\d+)`).exec(status)?.[1] ?? 0) / 1024;
  return { nowMb: field('VmRSS'), peakMb: field('VmHWM') };
}

/**
 * CPU milliseconds per name between two moments. `pids` maps names to pids, each of which counts alone; what runs below
 * the process that `sandboxesOf` names is counted as `sandboxd`.
 */
export class CpuMeter {
  #before;

  constructor(pids, { sandboxesOf } = {}) {
    this.pids = Object.entries(pids).filter(([, pid]) => pid !== undefined);
    this.sandboxesOf = sandboxesOf;
    this.restart();
  }

  restart() {
    this.#before = this.#now();
  }

  /** Milliseconds per name since the (re)start. */
  read() {
    const now = this.#now();
    return Object.fromEntries(Object.entries(now).map(([name, ms]) => [name, ms - (this.#before[name] ?? 0)]));
  }

  #now() {
    const spent = {};
    for (const [name, pid] of this.pids) {
      const { ownMs, belowMs } = cpuOf(pid);
      spent[name] = ownMs;
      if (name === this.sandboxesOf) spent.sandboxd = belowMs;
    }
    return spent;
  }
}
