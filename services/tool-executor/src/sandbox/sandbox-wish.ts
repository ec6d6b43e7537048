import type { RunGrant } from '@margay/contracts';
import { InvalidArgumentError } from '@margay/errors';
import type { Epoch } from '../driver/epoch';
import { classOf, type ClaimPath } from '../driver/sandbox-driver';
import { workspaceKeyOf, type ClaimWorkspace } from '../driver/workspace-key';

/** Who wants a sandbox, where, and since when: a run grant, or the same for work that belongs to no run. */
export type SandboxWish = Pick<RunGrant, 'tenantId' | 'sessionId' | 'epoch' | 'storeGeneration'> & {
  workspace: ClaimWorkspace;
  /** Absent: the usual one. */
  sandboxClass?: string | undefined;
  /** Whose session it is, where that is known. */
  owner?: string | undefined;
};

export interface Fence {
  epoch: number;
  /** Ends what runs at lower epochs. */
  kill: boolean;
  /** With `kill`: also what outlived its calls. */
  background: boolean;
}

/** Told of what happens to sandboxes, for metrics. */
export interface SandboxObserver {
  claimed(seconds: number, path: ClaimPath, className: string): void;
  claimFailed(error: unknown): void;
  lost(reason: string): void;
}

export const epochOf = (wish: SandboxWish): Epoch => ({ generation: wish.storeGeneration, epoch: wish.epoch });

export const keyOf = (wish: SandboxWish): string => workspaceKeyOf(wish);

/**
 * Session asked before it accepted the run; the classes may have changed since.
 * @throws InvalidArgumentError `sandbox_class_unknown`
 */
export function requireClass(classes: readonly string[], wish: SandboxWish): void {
  if (classes.includes(classOf(wish))) return;
  throw new InvalidArgumentError(
    'sandbox_class_unknown',
    `There is no sandbox class '${classOf(wish)}' here; there are: ${classes.join(', ')}. Nothing was run.`,
  );
}
