import { Gauge, type Registry } from 'prom-client';
import type { WorkspaceDocument } from './workspace-document';

export type WorkspaceState = Exclude<WorkspaceDocument['state'], 'deleted'>;

const STATES: readonly WorkspaceState[] = ['new', 'live', 'idle', 'dormant', 'waking', 'deleting'];

/** Counts the workspaces of all tenants whenever somebody asks; a state has no value while it can't be counted. */
export function showWorkspaces(registry: Registry, count: (state: WorkspaceState) => Promise<number>): void {
  const gauge: Gauge<'state'> = new Gauge({
    name: 'margay_workspaces',
    help: 'Workspaces of all tenants, the same from every replica',
    labelNames: ['state'],
    registers: [registry],
    collect: async () => {
      const show = async (state: WorkspaceState) => gauge.set({ state }, await count(state));
      await Promise.all(STATES.map((state) => show(state).catch(() => gauge.remove({ state }))));
    },
  });
}
