import { ManualClock } from '@margay/engine';

const SHORT_MS = 100;

/** A manual clock on which short sleeps pass by themselves, in virtual time: groups of results, polls. */
export class VirtualClock extends ManualClock {
  override sleep(ms: number, signal?: AbortSignal): Promise<void> {
    const sleeping = super.sleep(ms, signal);
    if (ms <= SHORT_MS) setImmediate(() => void this.advance(ms));
    return sleeping;
  }
}
