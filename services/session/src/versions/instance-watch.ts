import { UnavailableError } from '@margay/errors';
import { compareVersions, type Logger } from '@margay/platform';
import type { InstanceRepository, InstanceRow } from './instance.repository';

const POLL_MS = 5_000;
/** A beat that has not moved for so long, by this observer's own clock, is that of a process which is gone. */
const GONE_MS = 15_000;
/** … and after so long its row is removed; those of session replicas are removed by who watches runners. */
const FORGOTTEN_MS = 60_000;

/** Services beside session that are asked by another one, and so are replaced before it (cluster §5). */
const SERVERS: Readonly<Record<string, readonly string[]>> = { 'agent-runner': ['tool-executor', 'mcp-pool'] };

interface Observed {
  row: InstanceRow;
  changedAtMs: number;
}

export interface InstanceWatchOptions {
  instances: Pick<InstanceRepository, 'listAll' | 'remove'>;
  /** Of this replica. */
  version: string;
  logger: Logger;
  /** Monotonic milliseconds. */
  now?: () => number;
}

/**
 * Which versions live. An upgrade replaces session replicas first and their clients afterwards, a roll-back the other way
 * round, although Kubernetes begins with all at once: whoever's turn has not come is not ready.
 */
export class InstanceWatch {
  private readonly observed = new Map<string, Observed>();
  private readonly now: () => number;
  private timer?: NodeJS.Timeout;
  /** This replica has been ready once. */
  private isOpen = false;

  constructor(private readonly options: InstanceWatchOptions) {
    this.now = options.now ?? (() => performance.now());
  }

  /** Resolves once the instances have been looked at. */
  async start(): Promise<void> {
    await this.look();
    this.timer = setInterval(() => void this.look(), POLL_MS);
    this.timer.unref();
  }

  stop(): void {
    clearInterval(this.timer);
  }

  /** The lowest version among the session replicas that live, this one included. */
  lowestSession(): string {
    const versions = this.living().flatMap(({ service, version }) =>
      service === 'session' && version ? [version] : [],
    );
    return [this.options.version, ...versions].sort(compareVersions)[0] as string;
  }

  /** What a process of this service and version has to wait for, in words: servers of its that are older, clients that are newer. */
  neighboursOf(service: string, version: string): { olderServer: string; newerClient: string } {
    const wordsOf = (services: readonly string[], isWaitedFor: (order: number) => boolean): string => {
      const found = this.living().find(
        (row) => services.includes(row.service) && row.version && isWaitedFor(compareVersions(row.version, version)),
      );
      return found ? `${found.service} of version ${found.version}` : '';
    };
    const clients = Object.keys(SERVERS).filter((client) => SERVERS[client]?.includes(service));
    return {
      olderServer: wordsOf(SERVERS[service] ?? [], (order) => order < 0),
      newerClient: wordsOf(clients, (order) => order > 0),
    };
  }

  /**
   * A replica that was ready stays so: in an upgrade its own clients still need it, and newer ones wait by themselves.
   * @throws UnavailableError `version` while a client of a newer version lives: it was not made for this replica
   */
  checkReady(): void {
    if (this.isOpen) return;
    const { version } = this.options;
    const newer = this.living().find((row) => row.service !== 'session' && compareVersions(row.version ?? version, version) > 0); // prettier-ignore
    if (newer)
      throw new UnavailableError('version', `${newer.service} of version ${newer.version} still lives; session ${version} waits until it is replaced`); // prettier-ignore
    this.isOpen = true;
  }

  /** Compares beats with those seen before. */
  async look(): Promise<void> {
    try {
      const rows = await this.options.instances.listAll();
      const ids = new Set(rows.map(({ _id }) => _id));
      for (const id of this.observed.keys()) if (!ids.has(id)) this.observed.delete(id);
      for (const row of rows) this.see(row);
      await this.forget();
    } catch (error) {
      this.options.logger.debug({ err: error }, 'the instances could not be looked at');
    }
  }

  private see(row: InstanceRow): void {
    if (this.observed.get(row._id)?.row.beat !== row.beat) this.observed.set(row._id, { row, changedAtMs: this.now() });
  }

  private living(): InstanceRow[] {
    return [...this.observed.values()].filter(({ changedAtMs }) => this.now() - changedAtMs < GONE_MS).map(({ row }) => row); // prettier-ignore
  }

  private async forget(): Promise<void> {
    for (const { row, changedAtMs } of this.observed.values())
      if (row.service !== 'session' && this.now() - changedAtMs >= FORGOTTEN_MS)
        await this.options.instances.remove(row._id);
  }
}
