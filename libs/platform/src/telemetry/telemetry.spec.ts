import { NotFoundError } from '@margay/errors';
import { currentTraceIds, currentTraceparent, runWithTraceparent, withSpan } from './spans';
import { startTelemetry, type TelemetryOptions } from './telemetry';

type ExportedSpan = Parameters<NonNullable<TelemetryOptions['exporter']>['export']>[0][number];

const parent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';

describe('without an endpoint', () => {
  it('loads nothing and only runs the functions', async () => {
    const telemetry = await startTelemetry({ service: 'test', environment: {} });
    expect(telemetry.isEnabled).toBe(false);
    const seen = await withSpan('run', {}, (span) => [span, currentTraceparent()]);
    expect(seen).toEqual([undefined, undefined]);
    expect(runWithTraceparent(parent, currentTraceparent)).toBeUndefined();
    await telemetry.close();
  });
});

describe('with an exporter', () => {
  const spans: ExportedSpan[] = [];
  const exporter = {
    export: (batch: ExportedSpan[], done: (result: { code: number }) => void) => {
      spans.push(...batch);
      done({ code: 0 });
    },
    shutdown: async () => undefined,
  };

  it('continues the trace of the caller, nests spans, marks errors, and exports on close', async () => {
    const telemetry = await startTelemetry({ service: 'test', exporter });
    await runWithTraceparent(parent, () =>
      withSpan('invoke_agent main', { 'gen_ai.operation.name': 'invoke_agent' }, async () => {
        expect(currentTraceparent()).toMatch(/^00-0af7651916cd43dd8448eb211c80319c-[0-9a-f]{16}-01$/);
        expect(currentTraceIds().traceId).toBe('0af7651916cd43dd8448eb211c80319c');
        const failing = withSpan('chat demo', {}, () =>
          Promise.reject(new NotFoundError('model_unknown', 'No model.')),
        );
        await expect(failing).rejects.toMatchObject({ reason: 'model_unknown' });
      }),
    );
    await telemetry.close();
    const [chat, agent] = spans;
    expect(agent).toMatchObject({ name: 'invoke_agent main', parentSpanContext: { spanId: 'b7ad6b7169203331' } });
    expect(chat).toMatchObject({
      name: 'chat demo',
      parentSpanContext: { spanId: agent?.spanContext().spanId },
      status: { code: 2 },
      attributes: { 'error.type': 'model_unknown' },
    });
    expect(chat?.spanContext().traceId).toBe('0af7651916cd43dd8448eb211c80319c');
  });
});
