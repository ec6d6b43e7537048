import { ModelFailure, RunStopped, type Model, type ToolInvocation, type ToolOutcome } from '@margay/engine';
import { scriptedModel, FakeSandbox, toolDescriptor } from '@margay/testing';
import { Registry } from 'prom-client';
import { ObservedModel } from './observed-model';
import { ObservedTools } from './observed-tools';
import { RunnerMetrics } from './runner-metrics';
import { StepOverhead } from './step-overhead';

let registry: Registry;
let metrics: RunnerMetrics;
let nowMs: number;
let overheads: number[];
let overhead: StepOverhead;

beforeEach(() => {
  registry = new Registry();
  metrics = new RunnerMetrics(registry);
  nowMs = 0;
  overheads = [];
  overhead = new StepOverhead(
    (seconds) => overheads.push(seconds),
    () => nowMs,
  );
});

const request = { model: 'm', messages: [], tools: [] };
const call = (model: Model, signal = new AbortController().signal) =>
  new ObservedModel(model, { provider: 'p', metrics, overhead }).call(request, { signal, onText: () => undefined });

describe('the overhead of a step', () => {
  it('leaves out the time in which tools ran, however many at once', () => {
    overhead.modelCalled();
    overhead.modelAnswered(true);
    nowMs += 3;
    overhead.toolStarted();
    overhead.toolStarted();
    nowMs += 100;
    overhead.toolEnded();
    nowMs += 50;
    overhead.toolEnded();
    nowMs += 2;
    overhead.modelCalled();
    expect(overheads).toEqual([0.005]);
  });

  it('is not that of an answer without calls, nor of a failed attempt', () => {
    overhead.modelAnswered(false);
    nowMs += 1_000;
    overhead.modelCalled();
    expect(overheads).toEqual([]);
  });
});

describe('the outcome of a model call', () => {
  it.each([
    [new ModelFailure('rate_limit', 'slow down'), 'rate_limit'],
    [new Error('broken'), 'unknown'],
  ])('is the kind of its failure: %s', async (failure, outcome) => {
    await expect(call(scriptedModel([{ failure }]))).rejects.toBe(failure);
    expect(await registry.metrics()).toContain(`_count{provider="p",model="m",outcome="${outcome}"} 1`);
  });

  it.each([
    [new ModelFailure('timeout', 'fell silent'), 'timeout'],
    [new RunStopped('canceled'), 'canceled'],
    [new Error('interrupted by the user'), 'interrupted'],
  ])('is why it was given up: %s', async (reason, outcome) => {
    const controller = new AbortController();
    const answer = call(scriptedModel([{ hangs: true }]), controller.signal);
    setImmediate(() => controller.abort(reason));
    await expect(answer).rejects.toBe(reason);
    expect(await registry.metrics()).toContain(`outcome="${outcome}"} 1`);
  });
});

describe('an unknown outcome of a tool call', () => {
  const invocation: ToolInvocation = {
    callId: 'c',
    toolId: 't',
    args: {},
    effect: 'unkeyed',
    timeoutMs: 1,
    agentId: 'root',
    idempotencyKey: 'c',
  };
  const causeOf = async (
    outcome?: ToolOutcome | { status: 'wrong_incarnation'; incarnation: string; mayHaveRun: true },
  ) => {
    const tools = new FakeSandbox([], { incarnation: 'one', results: new Map() });
    const observed = new ObservedTools(tools, { metrics, overhead });
    if (outcome) {
      jest.spyOn(tools, 'execute').mockResolvedValue(outcome);
      await observed.execute(invocation, { incarnation: 'one', signal: new AbortController().signal });
    }
    observed.countUnknown('c');
    return /unknown_outcomes_total\{cause="(\w+)"\} 1/.exec(await registry.metrics())?.[1];
  };

  it.each([
    ['sandbox_restarted', { status: 'unknown' as const, result: null, incarnation: 'one' }],
    ['connection_lost', { status: 'unknown' as const, result: null }],
    ['sandbox_lost', { status: 'wrong_incarnation' as const, incarnation: 'two', mayHaveRun: true as const }],
    ['earlier_owner', undefined],
  ])('is counted by its cause: %s', async (cause, outcome) => {
    expect(await causeOf(outcome)).toBe(cause);
  });
});

it('puts models beyond the hundredth together', async () => {
  for (let n = 0; n < 150; n += 1) metrics.firstPiece(`model-${n}`, 1);
  expect(await registry.metrics()).toContain('margay_model_first_token_seconds_count{model="other"} 50');
});

it('reads the tools of what it observes', async () => {
  const descriptor = toolDescriptor({ tool_id: 'read_file' });
  const tools = new FakeSandbox([{ descriptor, run: () => ({ status: 'ok', result: '' }) }], {
    incarnation: 'one',
    results: new Map(),
  });
  expect(await new ObservedTools(tools, { metrics, overhead }).list()).toEqual([descriptor]);
});
