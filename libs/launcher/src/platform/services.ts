/** The seven services, as `--services` of the margay entry names them. */
export const SERVICES = [
  'gateway',
  'session',
  'tool-executor',
  'mcp-pool',
  'ide-manager',
  'channel',
  'agent-runner',
] as const;
export type ServiceName = (typeof SERVICES)[number];

/** `combined`: control (all but the runner) beside the runners. `split`: a process per service. */
export type PlatformMode = 'combined' | 'split';

export interface PlannedProcess {
  name: string;
  services: readonly ServiceName[];
}

/** A runner is always a process of its own: a crash in it must not stop leases or streams. */
export function planProcesses(mode: PlatformMode, runners: number): PlannedProcess[] {
  const control = SERVICES.filter((service) => service !== 'agent-runner');
  const first =
    mode === 'combined'
      ? [{ name: 'control', services: control }]
      : control.map((service) => ({ name: service, services: [service] }));
  const replicas = Array.from({ length: runners }, (_, index): PlannedProcess => ({
    name: runnerName(index),
    services: ['agent-runner'],
  }));
  return [...first, ...replicas];
}

function runnerName(index: number): string {
  return index === 0 ? 'agent-runner' : `agent-runner-${index + 1}`;
}
