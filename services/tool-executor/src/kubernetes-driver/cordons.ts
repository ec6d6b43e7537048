import type { Endings } from './endings';
import type { Pod } from './kubernetes-api';
import { LABEL } from './labels';
import type { NodeWatch } from './node-watch';
import type { SandboxContext } from './sandbox-context';
import { isFinal } from './sandbox-row';

const UNSCHEDULABLE = 'node.kubernetes.io/unschedulable';
const REASON = 'node_cordoned';

/**
 * Empties nodes that no pods are to come to any more (cluster §1.8): what waits goes at once; what serves a session is told to
 * leave, which lets its calls end, saves its files and sends the next call elsewhere, as every other end of a pod does.
 */
export class Cordons {
  constructor(
    private readonly context: SandboxContext,
    private readonly parts: { nodes: NodeWatch; endings: Endings },
  ) {
    const { pods } = context;
    parts.nodes.onCordon((name) => {
      for (const pod of pods.list()) if (pod.spec?.nodeName === name) this.leave(pod);
    });
    // It may have been on its way to the node.
    pods.onChange((pod, isDeleted) => {
      if (!isDeleted && parts.nodes.isCordoned(pod.spec?.nodeName)) this.leave(pod);
    });
  }

  private leave(pod: Pod): void {
    if (pod.metadata?.deletionTimestamp || mayStay(pod)) return;
    this.end(pod).catch((error: unknown) =>
      this.context.logger.warn({ err: error, pod: pod.metadata?.name }, 'a pod on a cordoned node could not be ended'),
    );
  }

  private async end({ metadata }: Pod): Promise<void> {
    const { namespace = '', name = '', uid = '', labels } = metadata ?? {};
    const { sandboxes, api, logger } = this.context;
    const row = await sandboxes.find(labels?.[LABEL.sandbox] ?? '');
    if (!row || isFinal(row) || row.podUid !== uid) return;
    const isWaiting = row.state === 'warm' || row.state === 'warming';
    logger.info({ sandboxId: row._id, sessionId: row.sessionId }, 'the node of a sandbox is cordoned');
    if (isWaiting && (await this.parts.endings.end(row, 'released', REASON))) return;
    // With its whole grace; somebody may have claimed it meanwhile.
    await api.deletePod({ namespace, name, uid });
  }
}

/** It would come back to the same node. */
function mayStay({ spec }: Pod): boolean {
  const tolerations = spec?.tolerations ?? [];
  return tolerations.some(({ key, operator }) => key === UNSCHEDULABLE || (key === undefined && operator === 'Exists'));
}
