import { Journal, Tools, type Progress, type ToolInvocation, type ToolOutcome } from '@margay/engine';
import { armFaultPoints } from '@margay/platform';
import { scriptedModel } from '@margay/testing';
import { FaultPointJournal } from './fault-point-journal';
import { FaultPointModel } from './fault-point-model';
import { FaultPointTools } from './fault-point-tools';

const run = { sessionId: 's', runId: 's:r1', epoch: 2 };
const log: string[] = [];
let disarm: () => void = () => undefined;

function arm(plan: string): void {
  disarm = armFaultPoints(plan, { warn: ({ point }: { point?: string }) => void (point && log.push(point)) });
}

afterEach(() => {
  disarm();
  log.length = 0;
});

class LoggingJournal extends Journal {
  open = () => Promise.reject(new Error('not asked for'));
  wait = () => Promise.resolve('released' as const);
  delta = () => undefined;

  commit({ events }: Progress): Promise<number> {
    log.push(events.map(({ type }) => type).join());
    return Promise.resolve(log.length);
  }

  finish(): Promise<'finished'> {
    log.push('finish');
    return Promise.resolve('finished');
  }
}

const progress = (...types: string[]) =>
  ({ events: types.map((type) => ({ type, payload: {} })), records: [] }) as Progress;
const A = progress('llm_call_end', 'tool_call');
const B = progress('tool_result', 'llm_call_start');
const CLOSING = { text: 'done', completion: { done: true, done_reason: 'completed' as const, task_result: null } };

describe('around the commits of a runner', () => {
  it.each([
    ['runner.before-commit-a', A, ['runner.before-commit-a']],
    ['runner.after-commit-a', A, ['llm_call_end,tool_call', 'runner.after-commit-a']],
    ['runner.before-commit-b', B, ['runner.before-commit-b']],
    ['runner.after-commit-b', B, ['tool_result,llm_call_start', 'runner.after-commit-b']],
  ])('%s lies where its name says', async (point, committed, order) => {
    arm(`${point}=throw?s:r1`);
    const journal = new FaultPointJournal(new LoggingJournal(), run);
    await expect(journal.commit(committed)).rejects.toMatchObject({ reason: 'fault_point' });
    expect(log).toEqual(order);
  });

  it.each([
    ['runner.before-final-commit', ['runner.before-final-commit']],
    ['runner.after-final-commit', ['finish', 'runner.after-final-commit']],
  ])('%s lies where its name says', async (point, order) => {
    arm(`${point}=throw?done`);
    const journal = new FaultPointJournal(new LoggingJournal(), run);
    await expect(journal.finish(progress(), CLOSING)).rejects.toMatchObject({ reason: 'fault_point' });
    expect(log).toEqual(order);
  });

  it('commits keep their order where one of them is held up', async () => {
    arm('runner.before-commit-a=pause:20');
    const journal = new FaultPointJournal(new LoggingJournal(), run);
    await Promise.all([journal.commit(A), journal.commit(progress('note')), journal.finish(progress(), CLOSING)]);
    expect(log).toEqual(['runner.before-commit-a', 'llm_call_end,tool_call', 'note', 'finish']);
  });
});

it('strikes in a model stream once its answer holds a text', async () => {
  arm('runner.during-model-stream=throw?hello');
  const model = new FaultPointModel(scriptedModel([{ text: 'hello' }]), run);
  const request = { model: 'm', messages: [], tools: [] };
  const texts: string[] = [];
  const options = { signal: new AbortController().signal, onText: (text: string) => void texts.push(text) };
  await expect(model.call(request, options)).rejects.toMatchObject({ reason: 'fault_point' });
  expect(texts.join('')).toBe('hello');
});

class StartingTools extends Tools {
  list = () => Promise.resolve([]);

  execute(_: ToolInvocation, { onStarted }: { onStarted?: () => void }): Promise<ToolOutcome> {
    onStarted?.();
    log.push('started');
    return Promise.resolve({ status: 'ok', result: '' });
  }
}

it('strikes while a call runs, after who waits for that has heard of it', async () => {
  arm('runner.during-call=block:1?"toolId":"t"');
  const call = { callId: 'c', toolId: 't', args: {}, effect: 'pure' as const, timeoutMs: 1, agentId: 'root' };
  const onStarted = () => void log.push('heard');
  const options = { incarnation: 'one', signal: new AbortController().signal, onStarted };
  await new FaultPointTools(new StartingTools(), run).execute({ ...call, idempotencyKey: 'c' }, options);
  expect(log).toEqual(['heard', 'runner.during-call', 'started']);
});
