import { createHash, randomBytes } from 'node:crypto';
import { faultPoint } from '@margay/platform';
import { isMargayError } from '@margay/errors';
import type { Pod } from './kubernetes-api';
import { isOwn, LABEL } from './labels';
import { podOf, volumeClaimOf, type PodRequest } from './pod-spec';
import type { SandboxContext } from './sandbox-context';
import type { SandboxRow, VolumeRef } from './sandbox-row';

const HEX_DIGITS = 20;

export const podNameOf = (sandboxId: string): string => `mg-${sandboxId}`;

/** The same id for the same attempt, so that a claim made again finds what it made before. */
export function boundId(claimKey: string, attempt: number): string {
  return createHash('sha256').update(`${claimKey}\0${attempt}`).digest('hex').slice(0, HEX_DIGITS);
}

export const randomId = (): string => randomBytes(HEX_DIGITS / 2).toString('hex');

export const detailOf = (row: SandboxRow): string => `${row.sessionId ?? 'pool'} ${row._id}`;

/** Makes the volume and the pod of a row, whichever is missing, and writes down what they are. */
export class Pods {
  constructor(private readonly context: SandboxContext) {}

  /** @returns the row with its pod's UID; undefined if somebody else changed it. @throws errors of the API */
  async ensure(row: SandboxRow, volume?: VolumeRef): Promise<SandboxRow | undefined> {
    if (row.podUid !== undefined) return row;
    const { sandboxes } = this.context;
    await faultPoint('sandbox.after-record', () => detailOf(row));
    const request = this.requestOf(row);
    const given =
      volume ??
      row.volume ??
      ((row.storage ?? request.class.storage) === 'volume' ? await this.makeVolume(request) : undefined);
    if (given) await faultPoint('sandbox.after-volume', () => detailOf(row));
    const pod = await this.makePod({ ...request, volumeName: given?.pvcName });
    await faultPoint('sandbox.after-pod', () => detailOf(row));
    const podUid = pod.metadata?.uid ?? '';
    const changed = await sandboxes.change(row, { podUid, startedAt: new Date(), ...(given ? { volume: given } : {}) });
    return typeof changed === 'string' ? undefined : changed;
  }

  /** The pod of a row as the cluster has it, also where the row does not know it yet; never another's. */
  async find(row: SandboxRow): Promise<Pod | undefined> {
    const pod = await this.context.api.findPod({ namespace: row.namespace, name: row.podName });
    if (!pod || (row.podUid !== undefined && pod.metadata?.uid !== row.podUid)) return undefined;
    return this.isOf(pod, row) ? pod : undefined;
  }

  isOf({ metadata }: Pod, row: SandboxRow): boolean {
    return isOwn(metadata?.labels, this.context.settings.install) && metadata?.labels?.[LABEL.sandbox] === row._id;
  }

  private requestOf(row: SandboxRow): PodRequest {
    const { tenantId, sessionId, subPath } = row;
    // All pods of a volume carry the label of the workspace that it belongs to.
    const workspaceId = row.volumeOf ?? row.workspaceId;
    const bound =
      sessionId !== undefined && workspaceId !== undefined ? { tenantId, sessionId, workspaceId } : undefined;
    return {
      sandboxId: row._id,
      namespace: row.namespace,
      podName: row.podName,
      className: row.class,
      class: this.context.settings.class(row.class),
      bound,
      subPath,
    };
  }

  private async makeVolume(request: PodRequest): Promise<VolumeRef> {
    const { api, settings } = this.context;
    const claim = volumeClaimOf(request, settings.install);
    const made = await api.createVolume(claim).catch(async (error: unknown) => {
      if (!isExisting(error)) throw error;
      // An earlier life of this claim made it.
      const known = await api.findVolume(nameOf(request));
      if (!known || !isOwn(known.metadata?.labels, settings.install)) throw error;
      return known;
    });
    return { pvcName: request.podName, pvcUid: made.metadata?.uid ?? '' };
  }

  private async makePod(request: PodRequest): Promise<Pod> {
    const { api, settings } = this.context;
    try {
      return await api.createPod(podOf(request, settings.pod));
    } catch (error) {
      if (!isExisting(error)) throw error;
      const known = await api.findPod(nameOf(request));
      const isOurs = isOwn(known?.metadata?.labels, settings.install);
      if (!known || !isOurs || known.metadata?.labels?.[LABEL.sandbox] !== request.sandboxId) throw error;
      return known;
    }
  }
}

const nameOf = ({ namespace, podName: name }: PodRequest) => ({ namespace, name });

function isExisting(error: unknown): boolean {
  return isMargayError(error) && error.reason === 'exists';
}
