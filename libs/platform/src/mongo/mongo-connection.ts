import * as os from 'node:os';
import { UnavailableError } from '@margay/errors';
import { ConnectionStates, createConnection, type Connection, type ConnectOptions } from 'mongoose';
import type { Registry } from 'prom-client';
import type { Logger } from '../logging/logger';
import { timeCommands } from './command-timer';

const RETRY_MS = 1_000;
const SELECTION_TIMEOUT_MS = 5_000;

export interface MongoConnectionOptions {
  url: string;
  database: string;
  logger: Logger;
  /** Shown by the server, e.g. the service. */
  name?: string;
  /** Where commands are timed; without it they are not. */
  registry?: Registry;
}

/** Every write is acknowledged by a majority and on disk, and nothing is read that a fail-over may take back; indexes are created explicitly by their repositories. */
const optionsFor = ({ database, name, registry }: MongoConnectionOptions): ConnectOptions => ({
  dbName: database,
  ...(name && { appName: name }),
  writeConcern: { w: 'majority', journal: true },
  readConcernLevel: 'majority',
  retryWrites: true,
  monitorCommands: registry !== undefined,
  autoIndex: false,
  autoCreate: false,
  serverSelectionTimeoutMS: SELECTION_TIMEOUT_MS,
  // The driver would load it by a dynamic import, which neither jest nor a bundle needs to follow.
  runtimeAdapters: { os },
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
    this.connection.on('error', (error: unknown) => this.report(error));
    if (options.registry) timeCommands(this.connection, options.registry);
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
    const { db, readyState } = this.connection;
    if (!db || readyState !== ConnectionStates.connected) throw storeUnavailable('is not connected');
    await db.command({ ping: 1 });
  }

  async close(): Promise<void> {
    this.isClosed = true;
    if (this.retry) {
      clearTimeout(this.retry.timer);
      this.retry.wake();
    }
    // A connection that is just opening would first wait for a server; closing its client ends that.
    if (this.connection.readyState === ConnectionStates.connecting) await this.connection.getClient().close();
    await this.opening;
    await this.connection.destroy(true);
  }

  private async open(): Promise<void> {
    while (!this.isClosed) {
      try {
        await this.connection.openUri(this.options.url, optionsFor(this.options));
        return;
      } catch {
        await this.pause(); // the connection's error event has told it
      }
    }
  }

  private report(error: unknown): void {
    if (this.isClosed) return;
    this.options.logger.warn({ err: error }, 'document store not reachable; trying again until it is');
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
