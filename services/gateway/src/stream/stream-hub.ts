import { setTimeout as pause } from 'node:timers/promises';
import { isMargayError, UnavailableError } from '@margay/errors';
import type { Logger } from '@margay/platform';
import type { FastifyReply } from 'fastify';
import type { Caller } from '../auth/admission';
import type { Authenticator } from '../auth/authenticator';
import { requireScope } from '../auth/scopes';
import { coversSession } from '../auth/tickets';
import type { Backends } from '../backends';
import type { GatewayMetrics } from '../metrics';
import { commitReader } from './commit-reader';
import type { Cursor } from './cursor';
import type { FrameStyle } from './feed-commit';
import { FeedRegistry } from './feed-registry';
import type { LaneSource, Wanted } from './lane-source';
import type { HubBus } from './live-bus';
import { MultiplexedStream } from './multiplexed-stream';
import { SessionStream } from './session-stream';
import type { StreamSettings } from './settings';
import { SocketWheel } from './socket-wheel';
import { SseSocket } from './sse-socket';
import { UserFeed } from './user-feed';

export interface StreamHubOptions {
  backends: Backends;
  bus: HubBus;
  authenticator: Authenticator;
  settings: StreamSettings;
  metrics: GatewayMetrics;
  logger: Logger;
}

/** One session, up to its end. */
export interface StreamRequest {
  sessionId: string;
  caller: Caller;
  cursor: Cursor;
  style: FrameStyle;
  withDeltas: boolean;
}

/** Many sessions, across runs. */
export interface MultiplexedRequest {
  caller: Caller;
  wanted: readonly Wanted[];
  /** With the feed of the caller. */
  isUserWanted: boolean;
  withDeltas: boolean;
}

interface Stream {
  start(): Promise<void>;
  /** Ends it early and cleanly. */
  leave(): void;
  /** The socket is closed. */
  closed(): void;
}

interface OpenStream {
  caller: Caller;
  socket: SseSocket;
  stream: Stream;
}

const FULL_RETRY_MS = 5_000;
const CLOSING_RETRY_MS = 1_000;

/** All streams of this gateway. */
export class StreamHub {
  private readonly feeds: FeedRegistry;
  private readonly streams = new Set<OpenStream>();
  private readonly wheel: SocketWheel;
  private readonly timers: NodeJS.Timeout[] = [];
  private forgetReconnect?: () => void;
  private isClosing = false;

  constructor(private readonly options: StreamHubOptions) {
    this.feeds = new FeedRegistry(options);
    this.wheel = new SocketWheel(options.settings);
  }

  get size(): number {
    return this.streams.size;
  }

  start(): void {
    const { probeMs, recheckMs } = this.options.settings;
    this.wheel.start();
    this.timers.push(setInterval(() => this.feeds.probe(probeMs), probeMs).unref());
    this.timers.push(setInterval(() => void this.recheck(), recheckMs).unref());
    this.forgetReconnect = this.options.bus.onReconnect(() => this.feeds.probe(0));
  }

  /** Serves a stream on this reply; rejects while it can still be answered otherwise. */
  async serve({ sessionId, caller, ...wishes }: StreamRequest, reply: FastifyReply): Promise<void> {
    const { settings, logger } = this.options;
    const source = this.sourceOf(caller);
    await this.open(caller, reply, (socket) => {
      return new SessionStream({ ...source.take(sessionId), source, socket, settings, logger, ...wishes });
    });
  }

  /** Serves a stream of many sessions on this reply. */
  async serveMany({ caller, isUserWanted, ...wishes }: MultiplexedRequest, reply: FastifyReply): Promise<void> {
    const { settings, logger } = this.options;
    const source = this.sourceOf(caller);
    const covers = (sessionId: string) => coversSession(caller, sessionId);
    const user = isUserWanted ? this.userFeed(caller) : undefined;
    await this.open(caller, reply, (socket) => {
      return new MultiplexedStream({ source, covers, user, socket, settings, logger, ...wishes });
    });
  }

  /** Keys have changed. */
  keysChanged(): void {
    this.options.authenticator.forget();
    void this.recheck();
  }

  /** Ends all streams spread over the span given, so that clients do not come back all at once. */
  async close(): Promise<void> {
    this.isClosing = true;
    const streams = [...this.streams];
    const { drainMs } = this.options.settings;
    await Promise.all(
      streams.map(async ({ stream }, index) => {
        await pause((drainMs * index) / streams.length);
        stream.leave();
      }),
    );
    for (const timer of this.timers) clearTimeout(timer);
    this.forgetReconnect?.();
    this.wheel.stop();
    this.feeds.close();
  }

  private async open(caller: Caller, reply: FastifyReply, make: (socket: SseSocket) => Stream): Promise<void> {
    this.admit();
    const { settings, metrics } = this.options;
    const socket = new SseSocket(reply, {
      settings,
      wheel: this.wheel,
      onCut: (reason) => metrics.streamCuts.inc({ reason }),
      onClosed: () => this.closed(entry),
    });
    const entry = { caller, socket, stream: make(socket) };
    this.streams.add(entry);
    metrics.streamsOpen.inc();
    try {
      await entry.stream.start();
      if (!reply.sent) reply.hijack();
    } catch (error) {
      socket.abandon();
      throw error;
    }
  }

  private admit(): void {
    const { maxStreams } = this.options.settings;
    if (this.isClosing) {
      const message = 'this gateway is shutting down; open the stream again';
      throw new UnavailableError('streams_exhausted', message, { retryAfterMs: CLOSING_RETRY_MS });
    }
    if (this.streams.size < maxStreams) return;
    const message = `too many open streams (${maxStreams}); try again later`;
    throw new UnavailableError('streams_exhausted', message, { retryAfterMs: FULL_RETRY_MS });
  }

  private closed(open: OpenStream): void {
    if (this.streams.delete(open)) this.options.metrics.streamsOpen.dec();
    open.stream.closed();
  }

  private sourceOf({ principal, call }: Caller): LaneSource {
    const { backends } = this.options;
    return {
      take: (sessionId) => ({
        feed: this.feeds.take(principal.tenantId, sessionId),
        reader: commitReader(backends, sessionId, call),
      }),
      release: (feed) => this.feeds.release(feed),
    };
  }

  private userFeed({ principal, call }: Caller): UserFeed {
    const { backends, bus, logger, settings } = this.options;
    const refreshMs = settings.userRefreshMs;
    return new UserFeed({ backends, bus, tenantId: principal.tenantId, call, logger, refreshMs });
  }

  /** Ends the streams of keys that are no longer valid or may no longer read. */
  private async recheck(): Promise<void> {
    const byKey = new Map<string, OpenStream[]>();
    for (const stream of this.streams) {
      const key = stream.caller.credential.sha256.toString('base64');
      const streams = byKey.get(key);
      if (streams) streams.push(stream);
      else byKey.set(key, [stream]);
    }
    await Promise.all([...byKey.values()].map((streams) => this.recheckKey(streams)));
  }

  private async recheckKey(streams: readonly OpenStream[]): Promise<void> {
    const [first] = streams;
    if (first && (await this.isRevoked(first.caller))) for (const { socket } of streams) socket.cut('key');
  }

  private async isRevoked({ credential }: Caller): Promise<boolean> {
    try {
      requireScope(await this.options.authenticator.identify(credential), 'sessions.read');
      return false;
    } catch (error) {
      return isMargayError(error) && (error.code === 'UNAUTHENTICATED' || error.code === 'PERMISSION_DENIED');
    }
  }
}
