import type { ModelUsage } from '../ports';
import { addUsage, NO_USAGE } from '../state/agent-state';
import type { AssistantRecord, RecordedCall } from '../state/records';
import type { AgentRun } from './agent-run';
import type { Asked } from './ask-model';
import { callId } from './call-ids';
import { failureClosing, tryFinish, type Closing, type FinishedRun } from './closing';
import { needsCommitment } from './execute';
import { prepareCall } from './run-call';
import { runCalls } from './run-calls';
import { nothing, type Carried } from './writer';

type Answered = Extract<Asked, { kind: 'answered' }>;

/** Where the loop goes after an answer: on, with what is to be stored, or to its end. */
export type Next = { carried: Carried } | { ended: FinishedRun };

/** Acts on what the model call came to. Everything before it is stored. */
export function handle(run: AgentRun, step: number, asked: Asked): Promise<Next> {
  if (asked.kind === 'interrupted') return Promise.resolve({ carried: interrupted(run, step, asked) });
  if (asked.kind === 'failed') return failed(run, step, asked);
  if (run.state.run.isWrappingUp) return wrapUp(run, step, asked);
  if (asked.answer.toolCalls.length > 0) return callTools(run, step, asked);
  const isCut = asked.answer.finishReason === 'length';
  if (isCut && run.state.run.cutParts.length === 0) return Promise.resolve({ carried: goOn(run, step, asked) });
  return complete(run, step, asked, isCut);
}

/** What was said before the interruption stays; its cost is unknown. */
function interrupted(run: AgentRun, step: number, { text, model }: Extract<Asked, { kind: 'interrupted' }>): Carried {
  const carried = nothing();
  carried.events.push(run.events.callFailed(step, model, 'interrupted', 'interrupted by the user'));
  if (text.trim() === '') return carried;
  carried.events.push(run.events.message(step, text));
  run.record(carried, assistant(run, step, model, text, [], NO_USAGE));
  return carried;
}

async function failed(run: AgentRun, step: number, asked: Extract<Asked, { kind: 'failed' }>): Promise<Next> {
  const { failure, model, modelsTried } = asked;
  const end = run.events.callFailed(step, model, failure.kind, failure.message);
  return endForced(run, failureClosing(failure.kind, failure.message, [end], modelsTried));
}

async function wrapUp(run: AgentRun, step: number, asked: Answered): Promise<Next> {
  const text = asked.answer.text.trim() === '' ? partialResults(run.state.run.outputs) : asked.answer.text;
  const events = [callEnd(run, step, asked)];
  return endForced(run, {
    doneReason: 'budget_exhausted',
    text,
    events,
    usage: asked.answer.usage,
    isForced: true,
  });
}

function partialResults(outputs: readonly string[]): string {
  return outputs.length === 0 ? '' : `Partial results:\n\n${outputs.join('\n\n')}`;
}

async function endForced(run: AgentRun, closing: Closing): Promise<Next> {
  const ended = await tryFinish(run, nothing(), closing);
  if (!ended) throw new Error('a forced end was refused');
  return { ended };
}

/** Commit A: the intent to call, stored before any call that is not pure. */
async function callTools(run: AgentRun, step: number, asked: Answered): Promise<Next> {
  const { answer, model } = asked;
  const taken = answer.toolCalls.slice(0, run.limits.callsTaken);
  const calls: RecordedCall[] = taken.map((call, index) => ({
    ...call,
    callId: callId(run.head.sessionId, run.head.epoch, step, index),
  }));
  const prepared = calls.map((call) => prepareCall(run, call, model));
  const needsSandbox = prepared.some(({ descriptor }) => descriptor && needsCommitment(descriptor));
  const sandbox = needsSandbox ? run.sandbox.fold() : undefined;
  const commit = nothing();
  commit.events.push(callEnd(run, step, asked));
  if (answer.text.trim() !== '') commit.events.push(run.events.message(step, answer.text));
  commit.events.push(...prepared.map(({ facts }) => run.events.toolCall(facts)));
  const incarnation = run.sandbox.incarnation;
  run.record(commit, {
    ...assistant(run, step, model, answer.text, calls, answer.usage),
    ...(needsSandbox && incarnation !== undefined ? { incarnation } : {}),
  });
  if (taken.length < answer.toolCalls.length) leaveOut(run, commit, answer.toolCalls.length);
  const acked = run.writer.commit({ ...commit, ...(sandbox ? { sandbox } : {}) });
  const turn = run.state.openTurn;
  if (!turn) throw new Error('an answer with calls opened no turn');
  return { carried: await runCalls(run, turn, acked) };
}

/** So many calls do not fit into the log one by one: model and person are told of the rest together. */
function leaveOut(run: AgentRun, commit: Carried, asked: number): void {
  const { callsTaken, callsPerAnswer } = run.limits;
  const text =
    `Your last answer made ${asked} tool calls. The first ${callsPerAnswer} were run, and those from number ` +
    `${callsTaken + 1} on are left out here. Make fewer calls at once.`;
  commit.events.push(run.events.note(`The model made ${asked} tool calls in one answer; most were refused.`));
  run.record(commit, { kind: 'note', agentId: run.agentId, cause: 'calls', text });
}

/** The answer hit the output limit: the model is asked once to go on. */
function goOn(run: AgentRun, step: number, asked: Answered): Carried {
  const carried = spoken(run, step, asked, true);
  const text = 'Your answer was cut at the output limit. Go on exactly where it stops, without repeating anything.';
  run.record(carried, { kind: 'note', agentId: run.agentId, cause: 'length', text });
  return carried;
}

/** Natural completion, unless messages came meanwhile: then the answer becomes part of the conversation. */
async function complete(run: AgentRun, step: number, asked: Answered, isCut: boolean): Promise<Next> {
  const events = [callEnd(run, step, asked)];
  if (isCut) events.push(run.events.note("The answer was cut at the model's output limit."));
  const text = [...run.state.run.cutParts, asked.answer.text].join('').trimEnd();
  const { usage } = asked.answer;
  const ended = await tryFinish(run, nothing(), { doneReason: 'completed', text, events, usage, isForced: false });
  return ended ? { ended } : { carried: spoken(run, step, asked, false) };
}

function spoken(run: AgentRun, step: number, asked: Answered, isCut: boolean): Carried {
  const { answer, model } = asked;
  const carried = nothing();
  carried.events.push(callEnd(run, step, asked));
  if (answer.text !== '') carried.events.push(run.events.message(step, answer.text));
  run.record(carried, {
    ...assistant(run, step, model, answer.text, [], answer.usage),
    ...(isCut ? { isCut } : {}),
  });
  return carried;
}

function assistant(
  run: AgentRun,
  step: number,
  model: string,
  text: string,
  toolCalls: RecordedCall[],
  usage: ModelUsage,
): AssistantRecord {
  return { kind: 'assistant', agentId: run.agentId, step, model, text, toolCalls, usage };
}

function callEnd(run: AgentRun, step: number, { answer, durationMs }: Answered): ReturnType<typeof run.events.callEnd> {
  return run.events.callEnd(step, answer, addUsage(run.state.run.usage, answer.usage), durationMs);
}

/** What the guards have to say before the next step; undefined: go on. */
export function haltOf(run: AgentRun, lastTool: string): Closing | undefined {
  const { guards, answers } = run.state.run;
  if (guards.isMalformed)
    return failureClosing(
      'malformed_tool_calls',
      'the model sent tool calls with malformed arguments three times in a row',
      [],
    );
  if (!guards.isWithoutProgress) return undefined;
  const events = [run.events.halted(answers, lastTool)];
  return { doneReason: 'halted_no_progress', text: '', events, isForced: false };
}
