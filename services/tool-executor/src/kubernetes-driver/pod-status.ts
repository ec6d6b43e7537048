import type { ClusterEvent, Pod } from './kubernetes-api';
import type { WaitReason } from '../driver/sandbox-driver';

export type PodStatus =
  | { kind: 'running'; ip: string; node?: string }
  | { kind: 'waiting'; reason: WaitReason; message: string }
  /** Waiting does not help; in the kubelet's words. */
  | { kind: 'broken'; reason: WaitReason; message: string }
  /** It is being deleted, was evicted, or has ended. */
  | { kind: 'leaving'; message: string };

/** Will be the same at every try. */
const BROKEN = new Set(['InvalidImageName', 'ErrImageNeverPull', 'CreateContainerConfigError', 'CreateContainerError']);
const PULLING = new Set(['ErrImagePull', 'ImagePullBackOff', 'RegistryUnavailable']);
/** The registry has answered, and the answer will not change by asking again. */
const NO_SUCH_IMAGE = /not found|manifest unknown|denied|unauthorized|no basic auth|invalid reference/i;

export function statusOf(pod: Pod): PodStatus {
  const { metadata, status } = pod;
  if (metadata?.deletionTimestamp) return { kind: 'leaving', message: 'the pod is being deleted' };
  if (status?.phase === 'Failed' || status?.phase === 'Succeeded')
    return { kind: 'leaving', message: status.message ?? status.reason ?? `the pod has ${status.phase.toLowerCase()}` };
  const container = status?.containerStatuses?.[0];
  // One that goes before it may be all that there is yet.
  const before = status?.initContainerStatuses?.find(({ state }) => state?.waiting !== undefined);
  const node = pod.spec?.nodeName;
  if (status?.podIP && container?.state?.running) return { kind: 'running', ip: status.podIP, ...(node && { node }) };
  const { reason = '', message = '' } = (before ?? container)?.state?.waiting ?? {};
  const words = message || reason;
  if (BROKEN.has(reason)) return { kind: 'broken', reason: imageOr(reason), message: words };
  if (PULLING.has(reason)) {
    return { kind: NO_SUCH_IMAGE.test(message) ? 'broken' : 'waiting', reason: 'image_pull', message: words };
  }
  const scheduled = status?.conditions?.find(({ type }) => type === 'PodScheduled');
  if (scheduled?.status === 'False' && scheduled.reason === 'Unschedulable')
    return { kind: 'waiting', reason: 'unschedulable', message: scheduled.message ?? 'no node can take the pod' };
  return { kind: 'waiting', reason: 'starting', message: words || 'the pod is being started' };
}

function imageOr(reason: string): WaitReason {
  return reason.includes('Image') ? 'image_pull' : 'starting';
}

/** Whether its container was ended as a whole for want of memory, the last time it ended. */
export function wasOutOfMemory(pod: Pod | undefined): boolean {
  return pod?.status?.containerStatuses?.[0]?.lastState?.terminated?.reason === 'OOMKilled';
}

/** What the newest event of a pod says that its status does not: whether it waits for its image or its volume. */
export function reasonOf(events: readonly ClusterEvent[]): { reason: WaitReason; message: string } | undefined {
  const newest = [...events].sort((a, b) => timeOf(a) - timeOf(b)).at(-1);
  const message = newest?.message ?? '';
  switch (newest?.reason) {
    case 'Pulling':
      return { reason: 'image_pull', message };
    case 'FailedMount':
    case 'FailedAttachVolume':
    case 'FailedBinding':
    case 'WaitForPodScheduled':
      return { reason: 'volume_attach', message };
    case 'FailedScheduling':
      return { reason: 'unschedulable', message };
    default:
      return undefined;
  }
}

function timeOf({ lastTimestamp, eventTime, metadata }: ClusterEvent): number {
  return new Date(lastTimestamp ?? eventTime ?? metadata.creationTimestamp ?? 0).getTime();
}
