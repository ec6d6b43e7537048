import { context, propagation, trace } from '@opentelemetry/api';
import type { NodeSDKConfiguration } from '@opentelemetry/sdk-node';
import { isTracingWanted } from './config';
import { enableSpans } from './spans';

export interface Telemetry {
  readonly isEnabled: boolean;
  /** Sends what is buffered and stops. */
  close(): Promise<void>;
}

export interface TelemetryOptions {
  service: string;
  environment?: NodeJS.ProcessEnv;
  /** Instead of OTLP over HTTP. */
  exporter?: NodeSDKConfiguration['traceExporter'];
}

/**
 * Starts tracing if OTEL_EXPORTER_OTLP_ENDPOINT is set (OTLP over HTTP, all `OTEL_*` settings apply); otherwise nothing
 * is loaded. Spans are made by hand with withSpan: patching libraries does not work in a bundle.
 */
export async function startTelemetry(options: TelemetryOptions): Promise<Telemetry> {
  if (!options.exporter && !isTracingWanted(options.environment))
    return { isEnabled: false, close: async () => undefined };
  const [{ NodeSDK }, { OTLPTraceExporter }] = await Promise.all([
    import('@opentelemetry/sdk-node'),
    import('@opentelemetry/exporter-trace-otlp-http'),
  ]);
  const sdk = new NodeSDK({
    serviceName: options.service,
    traceExporter: options.exporter ?? new OTLPTraceExporter(),
    metricReaders: [],
    logRecordProcessors: [],
  });
  sdk.start();
  enableSpans(true);
  return {
    isEnabled: true,
    close: async () => {
      enableSpans(false);
      await sdk.shutdown();
      // Or the next start in this process would find its place taken.
      for (const api of [trace, context, propagation]) api.disable();
    },
  };
}
