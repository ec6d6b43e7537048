import { createHash } from 'node:crypto';
import type { sandboxdPb } from '@margay/contracts';
import { pause } from '@margay/toolbox';

type Index = sandboxdPb.ListFilesResponse;

export interface IndexWatchOptions {
  /** Looks into the workspace. */
  look: () => Promise<Index>;
  /** A number that has risen whenever something may have changed; while something runs, it rises all the time. */
  changes: () => number;
  now: () => number;
}

const CHECK_MS = 250;
/** Two looks lie so far apart, and further where they take long: they must not be what the sandbox does. */
const APART_MS = 1_250;
const APART_TIMES = 10;
/** Others may share the volume. */
const LOOK_AGAIN_MS = 30_000;
const ALIVE_MS = 20_000;

interface Seen {
  index: Index;
  hash: string;
}

/** The index of the workspace, made anew when something may have changed; everybody who watches shares the looks. */
export class IndexWatch {
  private seen?: Seen;
  private lookedAtMs = -Infinity;
  private tookMs = 0;
  private changesSeen = -1;
  private looking?: Promise<void> | undefined;

  constructor(private readonly options: IndexWatchOptions) {}

  /** Each index that differs from the one before, within two seconds; between them an empty message now and then. */
  async *watch(signal: AbortSignal): AsyncIterable<sandboxdPb.WatchIndexResponse> {
    let told = '';
    let toldAtMs = -Infinity;
    while (!signal.aborted) {
      if (this.looking || this.isDue()) await this.look();
      const { now } = this.options;
      const isNews = this.seen !== undefined && this.seen.hash !== told;
      if (isNews || now() - toldAtMs >= ALIVE_MS) {
        told = this.seen?.hash ?? '';
        toldAtMs = now();
        yield { index: isNews ? this.seen?.index : undefined, ageMs: Math.ceil(now() - this.lookedAtMs) };
      }
      await pause(CHECK_MS, signal);
    }
  }

  private isDue(): boolean {
    const sinceMs = this.options.now() - this.lookedAtMs;
    if (sinceMs < Math.max(APART_MS, this.tookMs * APART_TIMES)) return false;
    return this.options.changes() !== this.changesSeen || sinceMs > LOOK_AGAIN_MS;
  }

  private look(): Promise<void> {
    this.looking ??= this.lookNow().finally(() => (this.looking = undefined));
    return this.looking;
  }

  private async lookNow(): Promise<void> {
    const { now, changes, look } = this.options;
    const startedAtMs = now();
    this.changesSeen = changes();
    this.lookedAtMs = startedAtMs;
    const index = await look();
    this.tookMs = now() - startedAtMs;
    this.seen = { index, hash: createHash('sha256').update(JSON.stringify(index)).digest('hex') };
  }
}
