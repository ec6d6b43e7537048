import { NotFoundError } from '@margay/errors';
import {
  currentTraceIds,
  currentTraceparent,
  isTraced,
  iterateInSpan,
  iterateWithTraceparent,
  markFailed,
  openSpan,
  runWithTraceparent,
  withSpan,
  withSyncSpan,
} from './spans';
import { startTelemetry, type TelemetryOptions } from './telemetry';

type ExportedSpan = Parameters<NonNullable<TelemetryOptions['exporter']>['export']>[0][number];

const parent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';

async function* items12(seen: (string | undefined)[] = []): AsyncGenerator<number> {
  for (const item of [1, 2]) {
    await Promise.resolve();
    seen.push(currentTraceIds().traceId);
    yield item;
  }
}

describe('without an endpoint', () => {
  it('loads nothing and only runs the functions', async () => {
    const telemetry = await startTelemetry({ service: 'test', environment: {} });
    expect(telemetry.isEnabled).toBe(false);
    const seen = await withSpan('run', {}, (span) => [span, currentTraceparent()]);
    expect(seen).toEqual([undefined, undefined]);
    expect(runWithTraceparent(parent, currentTraceparent)).toBeUndefined();
    expect(openSpan('request', {}, { traceparent: parent })).toBeUndefined();
    expect(withSyncSpan('deliver', {}, () => 'done')).toBe('done');
    const items = items12();
    expect(iterateInSpan('execute', {}, () => items)).toBe(items);
    expect(iterateWithTraceparent(parent, () => items)).toBe(items);
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

  let telemetry: Awaited<ReturnType<typeof startTelemetry>>;

  beforeEach(async () => {
    spans.length = 0;
    telemetry = await startTelemetry({ service: 'test', exporter });
  });
  afterEach(() => telemetry.close());

  const traceId = '0af7651916cd43dd8448eb211c80319c';
  const exported = async () => {
    await telemetry.close();
    return spans.map(({ name, attributes, status }) => ({ name, attributes, status: status.code }));
  };

  it('runs outside any trace what another process started without one', async () => {
    await withSpan('outer', {}, () => {
      expect(isTraced()).toBe(true);
      expect(runWithTraceparent(undefined, isTraced)).toBe(false);
      expect(runWithTraceparent('no traceparent', isTraced)).toBe(false);
    });
  });

  it('keeps a span open until somebody ends it', async () => {
    const span = openSpan('HTTP GET /', { a: 1 }, { kind: 'server', traceparent: parent });
    expect(span?.run(() => currentTraceIds().traceId)).toBe(traceId);
    span?.end({ 'error.type': '500' });
    expect(await exported()).toEqual([{ name: 'HTTP GET /', attributes: { a: 1, 'error.type': '500' }, status: 2 }]);
  });

  it('iterates inside a span, which ends with the iteration', async () => {
    const seen: (string | undefined)[] = [];
    await runWithTraceparent(parent, async () => {
      for await (const item of iterateInSpan('whole', {}, () => items12(seen))) expect(item).toBe(seen.length);
      for await (const _ of iterateInSpan('left', {}, () => items12(seen))) break;
    });
    const failing = iterateInSpan('failing', {}, async function* () {
      yield 1;
      throw new NotFoundError('gone', 'Gone.');
    });
    const iterateAll = async () => {
      for await (const _ of failing) continue;
    };
    await expect(iterateAll()).rejects.toMatchObject({ reason: 'gone' });
    expect(seen).toEqual([traceId, traceId, traceId]);
    expect(await exported()).toEqual([
      { name: 'whole', attributes: {}, status: 0 },
      { name: 'left', attributes: {}, status: 0 },
      { name: 'failing', attributes: { 'error.type': 'gone' }, status: 2 },
    ]);
  });

  it('iterates in the trace of a call of which there are many on one stream', async () => {
    const seen: (string | undefined)[] = [];
    for await (const _ of iterateWithTraceparent(parent, () => items12(seen))) expect(isTraced()).toBe(false);
    expect(seen).toEqual([traceId, traceId]);
    expect(await exported()).toEqual([]);
  });

  it('makes spans of short work only where it belongs to a trace', async () => {
    withSyncSpan('nobody', {}, () => undefined);
    runWithTraceparent(parent, () => withSyncSpan('somebody', {}, () => undefined));
    expect((await exported()).map(({ name }) => name)).toEqual(['somebody']);
  });

  it('marks a span by the word that its maker has for the failure', async () => {
    const work = withSpan('chat', {}, () => Promise.reject(new Error('x')), { errorType: () => 'rate_limit' });
    await expect(work).rejects.toThrow('x');
    await withSpan('tool', {}, (span) => markFailed(span, 'timed_out'));
    expect(await exported()).toEqual([
      { name: 'chat', attributes: { 'error.type': 'rate_limit' }, status: 2 },
      { name: 'tool', attributes: { 'error.type': 'timed_out' }, status: 2 },
    ]);
  });

  it('continues the trace of the caller, nests spans, marks errors, and exports on close', async () => {
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
