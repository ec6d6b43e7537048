import { createHash } from 'node:crypto';

export const LABEL = {
  managedBy: 'app.kubernetes.io/managed-by',
  install: 'margay.dev/install',
  component: 'margay.dev/component',
  class: 'margay.dev/class',
  sandbox: 'margay.dev/sandbox-id',
  egress: 'margay.dev/egress',
  session: 'margay.dev/session-id',
  workspace: 'margay.dev/workspace-id',
  tenant: 'margay.dev/tenant-id',
} as const;

/** When a volume was found to be nobody's. */
export const ORPHANED_AT = 'margay.dev/orphaned-at';
/** The one port of a sandbox. */
export const SANDBOX_PORT = 7777;

const MANAGER = 'margay';
const COMPONENT = 'sandbox';
const FITS = /^[a-zA-Z0-9]([-a-zA-Z0-9_.]{0,61}[a-zA-Z0-9])?$/;

/** A text as a label can hold it. */
export function labelValue(text: string): string {
  return FITS.test(text) ? text : createHash('sha256').update(text).digest('hex').slice(0, 40);
}

/** On everything this installation makes in the cluster; nothing without them is ever touched. */
export function ownLabels(install: string): Record<string, string> {
  return { [LABEL.managedBy]: MANAGER, [LABEL.install]: install, [LABEL.component]: COMPONENT };
}

export function selectorOf(install: string): string {
  return Object.entries(ownLabels(install))
    .map(([name, value]) => `${name}=${value}`)
    .join(',');
}

export function isOwn(labels: Record<string, string> | undefined, install: string): boolean {
  return Object.entries(ownLabels(install)).every(([name, value]) => labels?.[name] === value);
}

export function boundLabels(bound: { tenantId: string; sessionId: string; workspaceId: string }) {
  return {
    [LABEL.tenant]: labelValue(bound.tenantId),
    [LABEL.session]: labelValue(bound.sessionId),
    [LABEL.workspace]: bound.workspaceId,
  };
}
