import { UnavailableError } from '@margay/errors';
import { createConnection, type Connection, type ConnectOptions } from 'mongoose';
import type { Logger } from '../logging/logger';

const RETRY_MS = 1_000;
const SELECTION_TIMEOUT_MS = 5_000;

export interface MongoConnectionOptions {
  url: string;
  database: string;
  logger: Logger;
  /** Shown by the server, e.g. the service. */
  name?: string;
}

/** Every write is acknowledged by a majority and on disk; indexes are created explicitly by their repositories. */
const optionsFor = ({ database, name }: MongoConnectionOptions): ConnectOptions => ({
  dbName: database,
  ...(name && { appName: name }),
  writeConcern: { w: 'majority', journal: true },
  retryWrites: true,
  autoIndex: false,
  autoCreate: false,
  serverSelectionTimeoutMS: SELECTION_TIMEOUT_MS,
});

/**
 * A mongoose connection that is there at once and opens in the background, again and again until it succeeds; later outages
 * are the driver's to bridge. Commands sent before it is open wait up to 10 s.
 */
export class MongoConnection {
  readonly connection: Connection = createConnection();
  private isClosed = false;
  private opening?: Promise<void>;
  private retry?: { timer: NodeJS.Timeout; wake: () => void };

  constructor(private readonly options: MongoConnectionOptions) {
    this.connection.on('error', (error: unknown) =>
      options.logger.warn({ err: error }, 'document store reports an error'),
    );
  }

  /** Begins to open; use ready() to wait. */
  start(): this {
    this.opening ??= this.open();
    return this;
  }

  /** Waits until it is open; throws UNAVAILABLE `store_unavailable` after the time given. */
  async ready(timeoutMs: number): Promise<void> {
    this.start();
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(storeUnavailable(`was not reached in ${timeoutMs} ms`)), timeoutMs);
    });
    try {
      await Promise.race([this.opening, late]);
    } finally {
      clearTimeout(timer);
    }
  }

  /** For readiness: one ping, bounded by the server selection time-out. */
  async ping(): Promise<void> {
    if (this.connection.readyState !== 1 || !this.connection.db) throw storeUnavailable('is not connected');
    await this.connection.db.command({ ping: 1 });
  }

  async close(): Promise<void> {
    this.isClosed = true;
    if (this.retry) {
      clearTimeout(this.retry.timer);
      this.retry.wake();
    }
    await this.connection.close(true);
    await this.opening;
  }

  private async open(): Promise<void> {
    for (let failures = 0; !this.isClosed; failures += 1) {
      try {
        await this.connection.openUri(this.options.url, optionsFor(this.options));
        return;
      } catch (error) {
        if (failures === 0 && !this.isClosed)
          this.options.logger.warn({ err: error }, 'document store not reachable; trying on');
        await this.pause();
      }
    }
  }

  private async pause(): Promise<void> {
    if (this.isClosed) return;
    await new Promise<void>((resolve) => {
      this.retry = { timer: setTimeout(resolve, RETRY_MS), wake: resolve };
    });
  }
}

function storeUnavailable(what: string) {
  return new UnavailableError(
    'store_unavailable',
    `The document store ${what}; check MARGAY_MONGODB_URL and the server.`,
  );
}
