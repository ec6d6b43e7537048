import { UnavailableError } from '@margay/errors';

const READY_MS = 15_000;
const LIVE_MS = 30_000;
/** What hung with the store may take so long to notice that it answers again. */
const STORE_UP_MS = 15_000;

export interface StalledPorts {
  /** For how long the oldest work of each kind has been going on, by what it is called for people. */
  works: Record<string, () => number>;
  /** Rejects while the store does not answer. */
  pingStore: () => Promise<void>;
  nowMs?: () => number;
}

/**
 * Sees a replica whose work hangs although its process looks well: not ready after 15 s, not alive after 30 s, unless it
 * is the store that does not answer; a restart would not help then.
 */
export class StalledWork {
  private storeUpSinceMs?: number;
  private readonly nowMs: () => number;

  constructor(private readonly ports: StalledPorts) {
    this.nowMs = ports.nowMs ?? (() => performance.now());
  }

  /** @throws UnavailableError `work_stalled` */
  checkReady(): void {
    this.check(READY_MS);
  }

  /** @throws UnavailableError `work_stalled` */
  async checkLive(): Promise<void> {
    try {
      await this.ports.pingStore();
    } catch {
      delete this.storeUpSinceMs;
      return;
    }
    this.storeUpSinceMs ??= this.nowMs();
    if (this.nowMs() - this.storeUpSinceMs >= STORE_UP_MS) this.check(LIVE_MS);
  }

  private check(limitMs: number): void {
    for (const [name, ageMs] of Object.entries(this.ports.works))
      if (ageMs() >= limitMs)
        throw new UnavailableError('work_stalled', `${name} has been going on for ${Math.round(ageMs())} ms`);
  }
}
