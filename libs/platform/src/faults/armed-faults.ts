import type { FaultAction, PlannedFault } from './fault-plan';
import type { FaultPointName } from './fault-points';

/** The faults a process was started with, and how often each point was reached. */
export class ArmedFaults {
  private readonly faults: (PlannedFault & { reached: number })[];

  constructor(plan: PlannedFault[]) {
    this.faults = plan.map((fault) => ({ ...fault, reached: 0 }));
  }

  /** Counts that a point was reached. @returns what to do there now */
  reach(point: FaultPointName, detail: string): FaultAction | undefined {
    let action: FaultAction | undefined;
    for (const fault of this.faults) {
      if (fault.point !== point || !fault.texts.every((text) => detail.includes(text))) continue;
      fault.reached += 1;
      if (fault.at === 'always' || fault.at === fault.reached) action ??= fault.action;
    }
    return action;
  }
}
