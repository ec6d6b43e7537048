import { Histogram, type Registry } from 'prom-client';

/** Seconds; from a tenth of a millisecond to a minute. */
const BUCKETS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60];

export type CallTimer = (method: string, code: string, startedAt: number) => void;

/** Records how long served calls take; does nothing without a registry. */
export function callTimer(registry: Registry | undefined, service: string): CallTimer {
  if (!registry) return () => undefined;
  const name = 'margay_grpc_server_duration_seconds';
  const existing = registry.getSingleMetric(name) as Histogram<'service' | 'method' | 'code'> | undefined;
  const histogram =
    existing ??
    new Histogram({
      name,
      help: 'Time to serve a gRPC call',
      labelNames: ['service', 'method', 'code'],
      buckets: BUCKETS,
      registers: [registry],
    });
  return (method, code, startedAt) =>
    histogram.observe({ service, method, code }, (performance.now() - startedAt) / 1000);
}
