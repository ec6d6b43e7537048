import type { Logger } from '@margay/platform';
import type { NetworkCheck, NetworkCheckRepository } from './network-check.repository';
import type { NetworkVerdict } from './network-look';

export interface NetworkSweepParts {
  checks: Pick<NetworkCheckRepository, 'find' | 'store'>;
  namespaces: readonly string[];
  look: (namespace: string) => Promise<NetworkVerdict>;
  everyMs: number;
  logger: Logger;
  now?: () => number;
}

const AGAIN_MS = 60_000;

/** Looks whether network policies are enforced: once after the start, weekly, and every minute while they are not. */
export class NetworkSweep {
  private readonly startedAt: number;
  private readonly triedAt = new Map<string, number>();
  private readonly now: () => number;

  constructor(private readonly parts: NetworkSweepParts) {
    this.now = parts.now ?? Date.now;
    this.startedAt = this.now();
  }

  /** @returns in how many namespaces the verdict has become another one */
  async sweep(): Promise<number> {
    let changes = 0;
    for (const namespace of this.parts.namespaces) {
      const before = await this.parts.checks.find(namespace);
      if (this.isDue(namespace, before) && (await this.check(namespace, before))) changes += 1;
    }
    return changes;
  }

  private isDue(namespace: string, before: NetworkCheck | undefined): boolean {
    const now = this.now();
    if (now - (this.triedAt.get(namespace) ?? -Infinity) < AGAIN_MS) return false;
    if (!before || !before.holds) return true;
    const at = before.at.getTime();
    return at < this.startedAt || now - at > this.parts.everyMs;
  }

  private async check(namespace: string, before: NetworkCheck | undefined): Promise<boolean> {
    const { checks, look, logger } = this.parts;
    try {
      const { holds, detail } = await look(namespace);
      await checks.store({ _id: namespace, holds, detail, at: new Date(this.now()) });
      if (before?.holds === holds) return false;
      if (holds) logger.info({ namespace, detail }, 'network policies are enforced');
      else logger.error({ namespace, detail }, 'network policies are not enforced: a second tenant gets no sandbox');
      return true;
    } catch (error) {
      // The last verdict stands.
      logger.warn({ namespace, err: error }, 'whether network policies are enforced could not be found out');
      return false;
    } finally {
      this.triedAt.set(namespace, this.now());
    }
  }
}
