import { systemPrincipal, type Logger } from '@margay/platform';
import type { Backends } from '../backends';
import type { GatewayMetrics } from '../metrics';
import type { FeedCommit } from './feed-commit';
import type { LiveBus } from './live-bus';
import { SessionFeed } from './session-feed';
import type { StreamSettings } from './settings';

export interface FeedRegistryOptions {
  backends: Backends;
  bus: LiveBus;
  settings: StreamSettings;
  metrics: GatewayMetrics;
  logger: Logger;
}

const PROBES_PER_CALL = 1_000;

/** The feeds of all sessions that somebody follows here: one each, kept a little longer than its last listener. */
export class FeedRegistry {
  private readonly feeds = new Map<string, SessionFeed>();
  private readonly lingering = new Map<SessionFeed, NodeJS.Timeout>();

  constructor(private readonly options: FeedRegistryOptions) {}

  take(tenantId: string, sessionId: string): SessionFeed {
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

  /** A listener is gone. */
  release(feed: SessionFeed): void {
    if (feed.size > 0 || this.lingering.has(feed)) return;
    // Nobody could read it: nothing worth keeping.
    if (feed.position === undefined) {
      this.drop(feed);
      return;
    }
    const drop = setTimeout(() => this.drop(feed), this.options.settings.lingerMs).unref();
    this.lingering.set(feed, drop);
  }

  /** Looks in the store for the next commit of all watched sessions that were silent for this long. */
  probe(silentMs: number): void {
    const nowMs = performance.now();
    const byTenant = new Map<string, SessionFeed[]>();
    for (const feed of this.feeds.values()) {
      if (feed.size === 0 || feed.position === undefined || nowMs - feed.lastHeardMs < silentMs) continue;
      const feeds = byTenant.get(feed.tenantId);
      if (feeds) feeds.push(feed);
      else byTenant.set(feed.tenantId, [feed]);
    }
    for (const [tenantId, feeds] of byTenant) {
      for (let at = 0; at < feeds.length; at += PROBES_PER_CALL)
        void this.probeSome(tenantId, feeds.slice(at, at + PROBES_PER_CALL));
    }
  }

  close(): void {
    for (const timer of this.lingering.values()) clearTimeout(timer);
    for (const feed of this.feeds.values()) feed.close();
    this.feeds.clear();
  }

  private measure({ lastTs }: FeedCommit): void {
    if (lastTs !== undefined)
      this.options.metrics.streamEventDelay.observe(Math.max(0, Date.now() / 1_000 - lastTs / 1e6));
  }

  private drop(feed: SessionFeed): void {
    this.lingering.delete(feed);
    if (feed.size > 0) return;
    this.feeds.delete(`${feed.tenantId}/${feed.sessionId}`);
    feed.close();
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
}
