/** OpenTelemetry's own variables keep their names and are read by its SDK; only the switch is read here. */
export function isTracingWanted(environment: NodeJS.ProcessEnv = process.env): boolean {
  return Boolean(environment.OTEL_EXPORTER_OTLP_ENDPOINT || environment.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT);
}
