import { RunGrant } from '@margay/contracts';
import { InvalidArgumentError } from '@margay/errors';

export type Workspace = RunGrant['workspace'];

/** @throws InvalidArgumentError `bad_workspace` */
export function workspaceOf(json: string): Workspace {
  const parsed = RunGrant.shape.workspace.safeParse(jsonOf(json));
  if (parsed.success) return parsed.data;
  throw new InvalidArgumentError('bad_workspace', 'The workspace is none that a run could have.');
}

/** The same, of one that does not belong to a single session. @throws InvalidArgumentError `bad_workspace` */
export function sharedWorkspaceOf(json: string): Exclude<Workspace, { kind: 'own' }> {
  const workspace = workspaceOf(json);
  if (workspace.kind !== 'own') return workspace;
  throw new InvalidArgumentError('bad_workspace', 'Without its session nobody knows whose workspace it is.');
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined; // no workspace either
  }
}
