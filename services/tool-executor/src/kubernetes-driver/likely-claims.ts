import type { SandboxConnections } from '../sandbox/sandbox-connections';
import { CANDIDATES } from './warm-claim';
import type { SandboxContext } from './sandbox-context';
import { endpointOf } from './sandbox-ref';

/** How often each replica looks which sandboxes it may claim next. */
const LOOK_MS = 2_000;

/** Keeps connections to the sandboxes that the next claims choose among. */
export class LikelyClaims {
  private timer?: NodeJS.Timeout;
  private running: Promise<void> = Promise.resolve();
  private isStopped = false;

  constructor(
    private readonly context: SandboxContext,
    private readonly connections: SandboxConnections,
  ) {}

  start(): void {
    this.timer = setTimeout(() => (this.running = this.look().then(() => this.again())), LOOK_MS);
    this.timer.unref();
  }

  async stop(): Promise<void> {
    this.isStopped = true;
    clearTimeout(this.timer);
    await this.running;
    this.connections.close();
  }

  private again(): void {
    if (!this.isStopped) this.start();
  }

  private async look(): Promise<void> {
    const { sandboxes, settings, logger } = this.context;
    try {
      const pools = settings.pools.filter((pool) => settings.class(pool.class).warm.max > 0);
      const found = await Promise.all(pools.map(({ name }) => sandboxes.oldestWarm(name, CANDIDATES)));
      await this.connections.keep(found.flat().map((row) => endpointOf(row)));
    } catch (error) {
      logger.debug({ err: error }, 'which sandboxes wait could not be read');
    }
  }
}
