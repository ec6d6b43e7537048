import { faultPoint } from '@margay/platform';
import type { Pods } from './pods';
import { detailOf } from './pods';
import type { SandboxContext } from './sandbox-context';
import { isFinal, type SandboxRow } from './sandbox-row';

/** `Shutdown` has been asked before, or nothing is to be saved. */
const DELETE_GRACE_SECONDS = 5;

type Final = 'released' | 'failed' | 'lost';

/** Ends sandboxes: the row is nobody's first, then its pod goes, then the row is final. Whoever comes by may go on. */
export class Endings {
  constructor(
    private readonly context: SandboxContext,
    private readonly pods: Pods,
  ) {}

  /** @returns whether it was this call that took it from its session or pool */
  async end(row: SandboxRow, final: Final, reason: string): Promise<boolean> {
    if (isFinal(row)) return false;
    const { sandboxes } = this.context;
    const state = final === 'released' && reason === 'idle' ? 'suspending' : 'draining';
    const ended = await sandboxes.finish(row, state, reason);
    if (typeof ended === 'string') return false;
    await faultPoint('sandbox.before-delete', () => detailOf(row));
    await this.remove(ended, final);
    return true;
  }

  /** The rest of an end, also of one that somebody else began. */
  async remove(row: SandboxRow, final: Final): Promise<void> {
    const { api, sandboxes, workspaces, logger } = this.context;
    const { namespace, volume } = row;
    const pod = row.podUid === undefined ? await this.pods.find(row) : undefined;
    const podUid = row.podUid ?? pod?.metadata?.uid;
    if (podUid !== undefined) await api.deletePod({ namespace, name: row.podName, uid: podUid }, DELETE_GRACE_SECONDS);
    await faultPoint('sandbox.after-delete', () => detailOf(row));
    const isNobodys = volume?.pvcName === row.podName && !(await workspaces.findByVolume(namespace, volume.pvcName));
    if (volume && isNobodys) await api.deleteVolume({ namespace, name: volume.pvcName, uid: volume.pvcUid });
    await sandboxes.finish(row, final, row.reason ?? 'ended');
    const { _id: sandboxId, sessionId, reason } = row;
    logger.info({ sandboxId, sessionId, reason, state: final }, 'sandbox ended');
  }

  /** Its pod is gone or no longer that one. */
  async lose(row: SandboxRow, reason: string): Promise<boolean> {
    const lost = await this.context.sandboxes.finish(row, row.sessionId === undefined ? 'failed' : 'lost', reason);
    return typeof lost !== 'string';
  }

  /** It finishes the calls it has; its session claims another one. @returns undefined: somebody else has seen to it */
  async drain(row: SandboxRow, reason: string): Promise<SandboxRow | undefined> {
    const draining = await this.context.sandboxes.finish(row, 'draining', reason);
    return typeof draining === 'string' ? undefined : draining;
  }
}
