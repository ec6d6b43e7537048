import { isMargayError } from '@margay/errors';
import { systemPrincipal } from '@margay/platform';
import type { Backends } from '../backends';

/** Between two generations the platform stands still for longer than this. */
const FRESH_MS = 5_000;

/** Generation of the store, which ids of frames begin with once a backup was restored. */
export class StoreGeneration {
  private known?: { value: number; readAtMs: number };

  constructor(
    private readonly backends: Pick<Backends, 'instances'>,
    private readonly now: () => number = () => performance.now(),
  ) {}

  async get(): Promise<number> {
    if (this.known && this.now() - this.known.readAtMs < FRESH_MS) return this.known.value;
    const value = await this.read();
    this.known = { value, readAtMs: this.now() };
    return value;
  }

  private async read(): Promise<number> {
    const call = { principal: systemPrincipal('gateway', 'platform') };
    try {
      return (await this.backends.instances.describeStore({}, call)).generation;
    } catch (error) {
      // A session replica from before there were restores.
      if (isMargayError(error) && error.code === 'UNIMPLEMENTED') return 0;
      throw error;
    }
  }
}
