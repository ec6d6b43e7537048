import { InvalidArgumentError, type MargayError } from '@margay/errors';
import { FAULT_POINT_NAMES, isFaultPointName, type FaultPointName } from './fault-points';

export type FaultAction =
  | { kind: 'kill' | 'stop' | 'throw' | 'exhaust-memory' }
  /** `pause` holds up what waits at the point, `block` the whole event loop. */
  | { kind: 'pause' | 'block'; ms: number };

export interface PlannedFault {
  point: FaultPointName;
  action: FaultAction;
  /** Strikes when the point is reached for this time, or each time. */
  at: number | 'always';
  /** Counts only where the point's detail contains all of these. */
  texts: string[];
}

const PLAIN = new Set<string>(['kill', 'stop', 'throw', 'exhaust-memory']);
const TIMED = new Set<string>(['pause', 'block']);
const ITEM = /^(?<point>[\w.-]+)=(?<kind>[a-z-]+)(?::(?<ms>\d+))?(?:@(?<at>[1-9]\d*|\*))?(?:\?(?<texts>[^;]+))?$/;

/**
 * Reads `point=action[:ms][@n][?text]…`, several separated by `;`. `@*` means each time, without `@` it is the first.
 * @throws InvalidArgumentError `bad_fault_points`
 */
export function parseFaultPlan(plan: string): PlannedFault[] {
  const items = plan.split(';').map((item) => item.trim());
  return items.filter((item) => item !== '').map(parseItem);
}

function parseItem(item: string): PlannedFault {
  const { point, kind, ms, at = '1', texts } = ITEM.exec(item)?.groups ?? {};
  if (point === undefined || kind === undefined)
    throw refusal(item, 'write point=action, e.g. runner.before-commit-a=kill@2 or session.after-insert=pause:3000');
  if (!isFaultPointName(point))
    throw refusal(item, `there is no such point; known are ${FAULT_POINT_NAMES.join(', ')}`);
  return {
    point,
    action: parseAction(item, kind, ms),
    at: at === '*' ? 'always' : Number(at),
    texts: texts?.split('?') ?? [],
  };
}

function parseAction(item: string, kind: string, ms: string | undefined): FaultAction {
  if (TIMED.has(kind) && ms === undefined) throw refusal(item, `${kind} needs milliseconds, e.g. ${kind}:3000`);
  if (PLAIN.has(kind) && ms !== undefined) throw refusal(item, `${kind} takes no milliseconds`);
  if (PLAIN.has(kind)) return { kind } as FaultAction;
  if (TIMED.has(kind)) return { kind, ms: Number(ms) } as FaultAction;
  throw refusal(item, `there is no such action; known are ${[...PLAIN].join(', ')}, pause:ms and block:ms`);
}

function refusal(item: string, why: string): MargayError {
  return new InvalidArgumentError('bad_fault_points', `MARGAY_FAULT_POINTS: "${item}" is not usable: ${why}.`);
}
