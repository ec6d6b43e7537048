import { FailedPreconditionError } from '@margay/errors';
import { connect, Events, headers, type Msg, type NatsConnection, type Subscription } from 'nats';
import type { Logger } from '../logging/logger';
import { currentTraceparent, runWithTraceparent } from '../telemetry/spans';

const MIN_VERSION = [2, 11] as const;
const FIRST_CONNECT_WAIT_MS = 3_000;
const FLUSH_TIMEOUT_MS = 2_000;
const RECONNECT_WAIT_MS = 500;
const PING_INTERVAL_MS = 10_000;

export interface NatsBusOptions {
  /** One address or several with commas, each like `nats://host:4222`; `user:password@` or `token@` of the first counts for all. */
  url: string;
  /** Shown by the server, e.g. the service. */
  name: string;
  logger: Logger;
  /** How long start waits for the first connection before it goes on in the background. */
  firstConnectWaitMs?: number;
}

export type BusListener = (data: Uint8Array, subject: string) => void;

interface Interest {
  subject: string;
  listener: BusListener;
  active?: Subscription;
}

/**
 * Core NATS as Margay uses it: a lossy accelerator. It reconnects for ever; what is published while it is down is dropped,
 * and nothing here throws for that, since every reader also looks into the store.
 */
export class NatsBus {
  private connection?: NatsConnection;
  private isUp = false;
  private isClosed = false;
  private readonly interests = new Set<Interest>();
  private readonly reconnectListeners = new Set<() => void>();

  constructor(private readonly options: NatsBusOptions) {}

  get isConnected(): boolean {
    return this.isUp;
  }

  /**
   * Connects, or keeps trying in the background once the first wait is over. Throws FAILED_PRECONDITION
   * `nats_version` if a server answers that is too old: those accept newer options silently and lose them.
   */
  async start(): Promise<void> {
    const connected = this.connect();
    // Whoever waits gets the failure; later it is only in the log.
    connected.catch(() => undefined);
    const { isLate } = await within(connected, this.options.firstConnectWaitMs ?? FIRST_CONNECT_WAIT_MS);
    if (isLate) this.options.logger.warn({ name: this.options.name }, 'NATS not reachable yet; going on without it');
  }

  /** Sends if connected, with the trace of the caller; drops it otherwise. */
  publish(subject: string, data: string | Uint8Array): void {
    if (!this.connection || !this.isUp) return;
    try {
      const traceparent = currentTraceparent();
      this.connection.publish(subject, data, traceparent ? { headers: traceHeaders(traceparent) } : undefined);
    } catch (error) {
      this.options.logger.warn({ subject, err: error }, 'NATS message dropped');
    }
  }

  /** Listens until the returned function is called, over all reconnects. `*` and `>` are wildcards. */
  subscribe(subject: string, listener: BusListener): () => void {
    const interest: Interest = { subject, listener };
    this.interests.add(interest);
    this.activate(interest);
    return () => {
      this.interests.delete(interest);
      if (!this.connection?.isClosed()) interest.active?.unsubscribe();
    };
  }

  /** Resolves once the server has processed what was sent, in particular subscriptions; at once or after 2 s if it is down. */
  async flush(): Promise<void> {
    if (!this.connection || !this.isUp) return;
    const flushed = this.connection
      .flush()
      .catch((error: unknown) => this.options.logger.debug({ err: error }, 'NATS flush failed'));
    await within(flushed, FLUSH_TIMEOUT_MS);
  }

  /** Called after each reconnection, and after a first connection that start did not wait for: messages may have been missed. */
  onReconnect(listener: () => void): () => void {
    this.reconnectListeners.add(listener);
    return () => void this.reconnectListeners.delete(listener);
  }

  async close(): Promise<void> {
    this.isClosed = true;
    this.isUp = false;
    this.interests.clear();
    await this.connection?.close();
  }

  private async connect(): Promise<void> {
    const startedAt = performance.now();
    for (let failures = 0; !this.isClosed; failures += 1) {
      const connection = await this.open(failures);
      if (connection) return this.adopt(connection, performance.now() - startedAt);
      await pause(RECONNECT_WAIT_MS);
    }
  }

  private async open(failures: number): Promise<NatsConnection | undefined> {
    const { url, name, logger } = this.options;
    try {
      return await connect({
        ...serversOf(url),
        name,
        maxReconnectAttempts: -1,
        reconnectTimeWait: RECONNECT_WAIT_MS,
        pingInterval: PING_INTERVAL_MS,
        ignoreClusterUpdates: true,
      });
    } catch (error) {
      if (failures === 0) logger.warn({ err: error }, 'NATS connection failed; trying again until it succeeds');
      return undefined;
    }
  }

  private async adopt(connection: NatsConnection, tookMs: number): Promise<void> {
    const version = connection.info?.version ?? '0';
    if (this.isClosed || !isNewEnough(version)) {
      await connection.close();
      if (this.isClosed) return;
      const message = `The NATS server is version ${version}; Margay needs ${MIN_VERSION.join('.')} or newer.`;
      this.options.logger.error({ version }, 'NATS server is too old');
      throw new FailedPreconditionError('nats_version', message);
    }
    this.connection = connection;
    this.isUp = true;
    for (const interest of this.interests) this.activate(interest);
    void this.watch(connection);
    if (tookMs > (this.options.firstConnectWaitMs ?? FIRST_CONNECT_WAIT_MS)) this.announce();
  }

  private activate(interest: Interest): void {
    if (!this.connection || this.connection.isClosed() || interest.active) return;
    interest.active = this.connection.subscribe(interest.subject, {
      callback: (error, message) => {
        if (error)
          this.options.logger.warn({ subject: interest.subject, err: error }, 'NATS subscription reports an error');
        else this.deliver(interest, message);
      },
    });
  }

  private deliver(interest: Interest, message: Msg): void {
    try {
      const traceparent = message.headers?.get('traceparent');
      runWithTraceparent(traceparent, () => interest.listener(message.data, message.subject));
    } catch (error) {
      this.options.logger.error({ subject: message.subject, err: error }, 'NATS listener failed');
    }
  }

  private async watch(connection: NatsConnection): Promise<void> {
    for await (const { type } of connection.status()) {
      if (type === Events.Disconnect) {
        this.isUp = false;
        this.options.logger.warn({ name: this.options.name }, 'NATS connection lost');
      } else if (type === Events.Reconnect) {
        this.isUp = true;
        this.options.logger.info({ name: this.options.name }, 'NATS connection restored');
        this.announce();
      }
    }
  }

  private announce(): void {
    for (const listener of this.reconnectListeners) listener();
  }
}

/** The client reads no credentials from addresses, so they are taken out of them. */
export function serversOf(url: string): { servers: string[]; user?: string; pass?: string; token?: string } {
  const addresses = url.split(',').map((address) => new URL(address.includes('://') ? address : `nats://${address}`));
  const [user, pass] = [addresses[0]?.username, addresses[0]?.password].map((part) => decodeURIComponent(part ?? ''));
  const servers = addresses.map(({ protocol, host }) => `${protocol}//${host}`);
  if (!user) return { servers };
  return pass ? { servers, user, pass } : { servers, token: user };
}

function traceHeaders(traceparent: string) {
  const carrier = headers();
  carrier.set('traceparent', traceparent);
  return carrier;
}

function isNewEnough(version: string): boolean {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  return major > MIN_VERSION[0] || (major === MIN_VERSION[0] && minor >= MIN_VERSION[1]);
}

const pause = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms).unref());

async function within(promise: Promise<void>, limitMs: number): Promise<{ isLate: boolean }> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<{ isLate: boolean }>((resolve) => {
    timer = setTimeout(() => resolve({ isLate: true }), limitMs);
  });
  try {
    return await Promise.race([promise.then(() => ({ isLate: false })), late]);
  } finally {
    clearTimeout(timer);
  }
}
