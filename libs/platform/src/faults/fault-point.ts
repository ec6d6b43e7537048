import { ArmedFaults } from './armed-faults';
import { parseFaultPlan } from './fault-plan';
import type { FaultPointName } from './fault-points';
import { strike } from './strike';

/** Told of the faults a process is armed with, and of each that strikes; a logger is one. */
export interface FaultReport {
  warn(fields: object, sentence: string): void;
}

let armed: { faults: ArmedFaults; report: FaultReport } | undefined;

/**
 * Arms this process with the faults of `MARGAY_FAULT_POINTS`; nothing happens without it.
 * For tests only: no chart and no production set-up may set the variable.
 * @returns disarms
 * @throws InvalidArgumentError `bad_fault_points`
 */
export function armFaultPoints(plan: string | undefined, report: FaultReport): () => void {
  const faults = parseFaultPlan(plan ?? '');
  if (faults.length === 0) return () => undefined;
  report.warn(
    { faults: faults.map(({ point, action }) => `${point} ${action.kind}`) },
    'this process is armed with fault points: it will fail on purpose',
  );
  const own = { faults: new ArmedFaults(faults), report };
  armed = own;
  return () => {
    if (armed === own) armed = undefined;
  };
}

/**
 * A place at which this process can be told to fail. As good as free where it is not: then nothing is returned, and hot
 * paths need not wait: `const held = faultPoint(…); if (held) await held;`
 * @param detail what a plan's `?text` is looked for in; a function where building it costs
 */
export function faultPoint(name: FaultPointName, detail: string | (() => string) = ''): Promise<void> | undefined {
  if (!armed) return undefined;
  const { faults, report } = armed;
  const action = faults.reach(name, typeof detail === 'string' ? detail : detail());
  if (!action) return undefined;
  report.warn({ point: name, action: action.kind }, 'a fault point strikes');
  return strike(name, action);
}
