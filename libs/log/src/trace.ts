import type { HeadRun } from './head';

/** Id of the run's trace, for people who look for it. */
export function traceOf({ traceparent }: HeadRun): { trace_id?: string } {
  const traceId = traceparent?.split('-')[1];
  return traceId === undefined ? {} : { trace_id: traceId };
}
