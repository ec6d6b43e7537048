import { isMargayError } from '@margay/errors';
import { LRUCache } from 'lru-cache';
import type { SandboxRef } from '../driver/sandbox-driver';
import { bytesOf } from './classes';
import type { SandboxContext } from './sandbox-context';
import { isFinal } from './sandbox-row';

/** Before commands are told that there is little room, at 90 %. */
const GROW_AT_PERCENT = 80;
const GROW_BY = 1.5;
/** The cluster needs a moment to make it so. */
const AGAIN_MS = 30_000;
/** The storage class cannot do it, or a quota is in the way. */
const REFUSED_MS = 3_600_000;
const KNOWN = 10_000;
const MEBIBYTE = 1024 ** 2;

/** Makes volumes larger that fill up, as far as the class of their sandboxes says (cluster §2.2). */
export class VolumeGrowth {
  /** Until when a volume is left as it is, by its UID; and what a sandbox says is not looked at, by its id. */
  private readonly pauses = new LRUCache<string, number>({ max: KNOWN });

  constructor(
    private readonly context: SandboxContext,
    private readonly now: () => number = () => performance.now(),
  ) {}

  /** @param percent how full the workspace of that sandbox is. @returns whether its volume is to be larger now */
  async consider({ sandboxId }: SandboxRef, percent: number): Promise<boolean> {
    if (percent < GROW_AT_PERCENT || this.isPaused(sandboxId)) return false;
    this.pauses.set(sandboxId, this.now() + AGAIN_MS);
    const { sandboxes, settings, logger } = this.context;
    const row = await sandboxes.find(sandboxId);
    if (!row?.volume || isFinal(row)) return false;
    const { maxWorkspace } = settings.class(row.class);
    const { pvcName: name, pvcUid: uid } = row.volume;
    if (maxWorkspace === undefined || this.isPaused(uid)) return false;
    const seen = { namespace: row.namespace, name, uid };
    this.pauses.set(uid, this.now() + AGAIN_MS);
    try {
      return await this.grow(seen, bytesOf(maxWorkspace));
    } catch (error) {
      if (isMargayError(error) && error.reason === 'changed') return false;
      this.pauses.set(uid, this.now() + REFUSED_MS);
      logger.warn({ sandboxId, volume: name, err: error }, 'a volume that fills up could not be made larger');
      return false;
    }
  }

  private isPaused(id: string): boolean {
    return this.now() < (this.pauses.get(id) ?? 0);
  }

  private async grow(seen: { namespace: string; name: string; uid: string }, maxBytes: number): Promise<boolean> {
    const { api, logger } = this.context;
    const found = await api.findVolume(seen);
    if (!found || found.metadata?.uid !== seen.uid) return false;
    const asked = bytesOf(found.spec?.resources?.requests?.['storage'] ?? '0');
    const has = bytesOf(found.status?.capacity?.['storage'] ?? '0');
    // It is on its way already.
    if (has < asked) return false;
    const size = Math.min(Math.floor(maxBytes / MEBIBYTE), Math.ceil((has * GROW_BY) / MEBIBYTE));
    if (size * MEBIBYTE <= has) return false;
    const storage = `${size}Mi`;
    await api.growVolume({ ...seen, resourceVersion: found.metadata.resourceVersion }, storage);
    logger.info({ volume: seen.name, storage }, 'a volume that fills up becomes larger');
    return true;
  }
}
