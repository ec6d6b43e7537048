import { Counter, Gauge, Histogram, type Registry } from 'prom-client';

const SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

/** Why a stream was ended against the client's will. */
export type CutReason = 'slow' | 'stalled' | 'store' | 'key' | 'access';

export class GatewayMetrics {
  readonly requestDuration: Histogram<'route' | 'method' | 'status'>;
  readonly streamsOpen: Gauge;
  /** From the time a commit's last event was stamped to its being written to this replica's listeners. */
  readonly streamEventDelay: Histogram;
  readonly streamCuts: Counter<'reason'>;
  readonly rateLimited: Counter<'scope'>;

  constructor(registry: Registry) {
    const registers = [registry];
    this.requestDuration = new Histogram({
      name: 'margay_http_request_duration_seconds',
      help: 'Duration of requests, streams left out',
      labelNames: ['route', 'method', 'status'],
      buckets: SECONDS,
      registers,
    });
    this.streamsOpen = new Gauge({ name: 'margay_streams_open', help: 'Open event streams', registers });
    this.streamEventDelay = new Histogram({
      name: 'margay_stream_event_delay_seconds',
      help: 'From stored to written',
      buckets: SECONDS,
      registers,
    });
    this.streamCuts = new Counter({
      name: 'margay_stream_cuts_total',
      help: 'Streams ended by the gateway before their end',
      labelNames: ['reason'],
      registers,
    });
    this.rateLimited = new Counter({
      name: 'margay_rate_limited_total',
      help: 'Requests refused by a rate limit',
      labelNames: ['scope'],
      registers,
    });
  }
}
