import { setTimeout as pause } from 'node:timers/promises';
import { isMargayError, UnavailableError } from '@margay/errors';
import { systemPrincipal, type Logger } from '@margay/platform';
import type { FastifyReply } from 'fastify';
import type { Caller } from '../auth/admission';
import type { Authenticator } from '../auth/authenticator';
import { requireScope } from '../auth/scopes';
import type { Backends } from '../backends';
import type { GatewayMetrics } from '../metrics';
import { commitReader } from './commit-reader';
import type { Cursor } from './cursor';
import type { FeedCommit } from './feed-commit';
import { SessionFeed, type LiveBus } from './session-feed';
import { SessionStream } from './session-stream';
import type { StreamSettings } from './settings';
import { SocketWheel } from './socket-wheel';
import { SseSocket } from './sse-socket';

export interface HubBus extends LiveBus {
  onReconnect(listener: () => void): () => void;
}

export interface StreamHubOptions {
  backends: Backends;
  bus: HubBus;
  authenticator: Authenticator;
  settings: StreamSettings;
  metrics: GatewayMetrics;
  logger: Logger;
}

export interface StreamRequest {
  sessionId: string;
  caller: Caller;
  cursor: Cursor;
  withIds: boolean;
  withDeltas: boolean;
}

interface OpenStream {
  caller: Caller;
  socket: SseSocket;
  stream: SessionStream;
}

const PROBES_PER_CALL = 1_000;
const FULL_RETRY_MS = 5_000;
const CLOSING_RETRY_MS = 1_000;

/** All streams of this gateway, and the feeds they share. */
export class StreamHub {
  private readonly feeds = new Map<string, SessionFeed>();
  private readonly streams = new Set<OpenStream>();
  private readonly wheel: SocketWheel;
  private readonly timers: NodeJS.Timeout[] = [];
  private readonly lingering = new Map<SessionFeed, NodeJS.Timeout>();
  private forgetReconnect?: () => void;
  private isClosing = false;

  constructor(private readonly options: StreamHubOptions) {
    this.wheel = new SocketWheel(options.settings);
  }

  get size(): number {
    return this.streams.size;
  }

  start(): void {
    const { probeMs, recheckMs } = this.options.settings;
    this.wheel.start();
    this.timers.push(setInterval(() => this.probe(probeMs), probeMs).unref());
    this.timers.push(setInterval(() => void this.recheck(), recheckMs).unref());
    this.forgetReconnect = this.options.bus.onReconnect(() => this.probe(0));
  }

  /** Serves a stream on this reply; rejects while it can still be answered otherwise. */
  async serve(request: StreamRequest, reply: FastifyReply): Promise<void> {
    this.admit();
    const { backends, settings, metrics, logger } = this.options;
    const { sessionId, caller, ...wishes } = request;
    const feed = this.feedOf(caller.principal.tenantId, sessionId);
    const socket = new SseSocket(reply, {
      settings,
      wheel: this.wheel,
      onCut: (reason) => metrics.streamCuts.inc({ reason }),
      onClosed: () => this.closed(entry, feed),
    });
    const reader = commitReader(backends, sessionId, caller.call);
    const entry = { caller, socket, stream: new SessionStream({ feed, reader, socket, settings, logger, ...wishes }) };
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
    for (const timer of [...this.timers, ...this.lingering.values()]) clearTimeout(timer);
    this.forgetReconnect?.();
    this.wheel.stop();
    for (const feed of this.feeds.values()) feed.close();
    this.feeds.clear();
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

  private feedOf(tenantId: string, sessionId: string): SessionFeed {
    const key = `${tenantId}/${sessionId}`;
    const known = this.feeds.get(key);
    if (known) {
      clearTimeout(this.lingering.get(known));
      this.lingering.delete(known);
      return known;
    }
    const { bus, settings, logger } = this.options;
    const onDelivered = (commit: FeedCommit) => this.measure(commit);
    const feed = new SessionFeed({ tenantId, sessionId, bus, settings, logger, onDelivered });
    this.feeds.set(key, feed);
    return feed;
  }

  private measure({ lastTs }: FeedCommit): void {
    if (lastTs !== undefined)
      this.options.metrics.streamEventDelay.observe(Math.max(0, Date.now() / 1_000 - lastTs / 1e6));
  }

  private closed(open: OpenStream, feed: SessionFeed): void {
    if (this.streams.delete(open)) this.options.metrics.streamsOpen.dec();
    open.stream.closed();
    if (feed.size > 0 || this.lingering.has(feed)) return;
    // Nobody could read it: nothing worth keeping.
    if (feed.position === undefined) {
      this.drop(feed);
      return;
    }
    const drop = setTimeout(() => this.drop(feed), this.options.settings.lingerMs).unref();
    this.lingering.set(feed, drop);
  }

  private drop(feed: SessionFeed): void {
    this.lingering.delete(feed);
    if (feed.size > 0) return;
    this.feeds.delete(`${feed.tenantId}/${feed.sessionId}`);
    feed.close();
  }

  /** Looks in the store for the next commit of all watched sessions that were silent for this long. */
  private probe(silentMs: number): void {
    const nowMs = performance.now();
    const byTenant = new Map<string, SessionFeed[]>();
    for (const feed of this.feeds.values()) {
      if (feed.size === 0 || feed.position === undefined || nowMs - feed.lastHeardMs < silentMs) continue;
      append(byTenant, feed.tenantId, feed);
    }
    for (const [tenantId, feeds] of byTenant) {
      for (let at = 0; at < feeds.length; at += PROBES_PER_CALL)
        void this.probeSome(tenantId, feeds.slice(at, at + PROBES_PER_CALL));
    }
  }

  private async probeSome(tenantId: string, feeds: SessionFeed[]): Promise<void> {
    const { backends, settings, logger } = this.options;
    const asked = new Map(feeds.map((feed) => [feed.sessionId, { feed, c: (feed.position ?? 0) + 1 }]));
    const probes = [...asked].map(([sessionId, { c }]) => ({ sessionId, c }));
    const principal = systemPrincipal('gateway', tenantId);
    try {
      const { sessionIds } = await backends.sessions.probeCommits(
        { probes },
        { principal, timeoutMs: settings.probeMs * 2 },
      );
      for (const { feed, c } of sessionIds.flatMap((id) => asked.get(id) ?? [])) feed.learn(c);
    } catch (error) {
      logger.warn({ tenantId, count: probes.length, err: error }, 'watched sessions could not be probed');
    }
  }

  /** Ends the streams of keys that are no longer valid or may no longer read. */
  private async recheck(): Promise<void> {
    const byKey = new Map<string, OpenStream[]>();
    for (const stream of this.streams) {
      append(byKey, stream.caller.credential.sha256.toString('base64'), stream);
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

function append<T>(groups: Map<string, T[]>, key: string, item: T): void {
  const group = groups.get(key);
  if (group) group.push(item);
  else groups.set(key, [item]);
}
