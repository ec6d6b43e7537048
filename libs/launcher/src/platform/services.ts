import { InvalidArgumentError } from '@margay/errors';

/** The seven services and the egress proxy, as `--services` of the margay entry names them. */
export const SERVICES = [
  'gateway',
  'session',
  'tool-executor',
  'mcp-pool',
  'ide-manager',
  'channel',
  'egress',
  'agent-runner',
] as const;
export type ServiceName = (typeof SERVICES)[number];

/** `combined`: control (all but the runner) beside the runners. `split`: a process per service. */
export type PlatformMode = 'combined' | 'split';

export interface PlannedProcess {
  name: string;
  services: readonly ServiceName[];
}

/**
 * How many processes of a service; 1 where nothing is said. Only gateway, session and agent-runner can have several: the
 * other services keep what they serve in their own memory or, as the tool-executor's process driver, in one folder.
 */
export type Replicas = Partial<Record<'gateway' | 'session' | 'agent-runner', number>>;

/**
 * A runner is always a process of its own: a crash in it must not stop leases or streams. Without `hasEgress` sandboxes
 * reach nothing outside.
 */
export function planProcesses(mode: PlatformMode, replicas: Replicas = {}, hasEgress = false): PlannedProcess[] {
  const control = SERVICES.filter((service) => service !== 'agent-runner' && (hasEgress || service !== 'egress'));
  const runners = replicate('agent-runner', replicas);
  if (mode === 'split') return [...control.flatMap((service) => replicate(service, replicas)), ...runners];
  const several = control.find((service) => countOf(service, replicas) > 1);
  if (several)
    throw new InvalidArgumentError('replicas_need_split', `several ${several} processes need the mode split`);
  return [{ name: 'control', services: control }, ...runners];
}

/** `session`, `session-2`, `session-3`, … */
function replicate(service: ServiceName, replicas: Replicas): PlannedProcess[] {
  return Array.from({ length: countOf(service, replicas) }, (_, index): PlannedProcess => ({
    name: index === 0 ? service : `${service}-${index + 1}`,
    services: [service],
  }));
}

function countOf(service: ServiceName, replicas: Replicas): number {
  return (replicas as Partial<Record<ServiceName, number>>)[service] ?? 1;
}
