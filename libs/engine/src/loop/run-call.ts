import type { ToolDescriptor } from '@margay/contracts';
import type { ToolInvocation, ToolOutcome } from '../ports';
import { readKey } from '../state/read-cache';
import type { RecordedCall, ToolRecord } from '../state/records';
import { askUserQuestion } from '../tools/ask-user-question';
import { prepareArguments, type PreparedArguments } from '../tools/arguments';
import { parseModelJson } from '../tools/parse-json';
import { failedResult, shapeResult, type ShapedResult } from '../tools/shape-result';
import { timeoutSeconds } from '../tools/timeout';
import type { AgentRun } from './agent-run';
import { epochOfCall, indexOfCall } from './call-ids';
import type { CallFacts } from './event-factory';
import { askPerson } from './ask-person';
import { execute } from './execute';
import { resultCap, type RunLimits } from './limits';
import { messageOf } from './plain-text';

const READ_TOOL = 'read_file';

/** A call as the engine understands it, before anything ran. */
export interface PreparedCall {
  call: RecordedCall;
  descriptor: ToolDescriptor | undefined;
  prepared: PreparedArguments;
  facts: CallFacts;
}

export interface FinishedCall {
  facts: CallFacts;
  result: ShapedResult;
  durationMs: number;
  isDenied: boolean;
  record: ToolRecord;
}

/** The same for the same call whenever it is asked, also after a takeover. */
export function prepareCall(run: AgentRun, call: RecordedCall, model: string): PreparedCall {
  const descriptor = run.tools.find(call.name);
  const prepared = preparedArguments(run, call, descriptor);
  const input = prepared.ok ? prepared.args : rawInput(call.argumentsText);
  const operation = descriptor?.operation ?? 'set';
  return {
    call,
    descriptor,
    prepared,
    facts: { call, toolId: descriptor?.tool_id ?? call.name, operation, input, model },
  };
}

/** A model that went wild is told so, call by call, and nothing of that runs. */
function isBeyondCap({ callsPerAnswer }: RunLimits, callId: string): boolean {
  return indexOfCall(callId) >= callsPerAnswer;
}

function preparedArguments(
  { limits }: AgentRun,
  { callId, argumentsText }: RecordedCall,
  descriptor: ToolDescriptor | undefined,
): PreparedArguments {
  const { callsPerAnswer } = limits;
  if (isBeyondCap(limits, callId))
    return { ok: false, error: `not run: one answer may make ${callsPerAnswer} calls; make the rest in the next one` };
  return descriptor ? prepareArguments(descriptor, argumentsText) : { ok: false, error: 'Tool not available' };
}

/** Arguments that can't be used are shown as they came. */
function rawInput(text: string): unknown {
  try {
    const value = parseModelJson(text === '' ? '{}' : text);
    return typeof value === 'object' && value !== null ? value : { arguments: value };
  } catch {
    return { arguments: text };
  }
}

/** Takes one call to its result. Every way out but the stop of the run is a result. */
export async function runCall(
  run: AgentRun,
  { call, descriptor, prepared, facts }: PreparedCall,
  gate: { acked: Promise<unknown>; isInterrupted: () => boolean },
): Promise<FinishedCall> {
  const startedMs = run.ports.clock.monotonicMs();
  const finish = (result: ShapedResult, more: Partial<ToolRecord> = {}, isDenied = false): FinishedCall => {
    const durationMs = Math.round(run.ports.clock.monotonicMs() - startedMs);
    return { facts, result, durationMs, isDenied, record: { ...toolRecord(run, call, result), ...more } };
  };
  if (!prepared.ok) {
    const refused = isBeyondCap(run.limits, call.callId) ? { isRefused: true as const } : {};
    return finish(failedResult(prepared.error), refused);
  }
  if (!descriptor) return finish(failedResult('Tool not available'));
  if (descriptor.effect !== 'pure') await gate.acked;
  // A question that was asked has its own outcome.
  if (gate.isInterrupted() && !run.state.hasAsked(call.callId)) return finish(interruptedResult(run, call, descriptor));
  const invocation = invoke(run, call, descriptor, prepared.args);
  const refusal = await askConsent(run, invocation, descriptor);
  if (refusal !== undefined) return finish(failedResult(`Permission denied: ${refusal}`), {}, true);
  const outcome =
    descriptor === askUserQuestion ? await askPerson(run, invocation) : await execute(run, invocation, descriptor);
  const result = shapeResult(outcome, {
    descriptor,
    timeoutSeconds: invocation.timeoutMs / 1000,
    maxChars: resultCap(descriptor.max_result_chars, run.limits.contextWindowTokens),
    unchangedText: unchangedText(run, invocation),
  });
  return finish(result, sideEffects(invocation, outcome, result));
}

/** Nothing is started any more; but a lost owner of the run may have started it. */
function interruptedResult(run: AgentRun, { callId }: RecordedCall, descriptor: ToolDescriptor): ShapedResult {
  const mayHaveRun = descriptor.effect !== 'pure' && epochOfCall(callId) !== run.head.epoch && !run.isWoken;
  if (!mayHaveRun)
    return failedResult(`Tool '${descriptor.tool_id}' was not started: interrupted by the user`, 'cancelled');
  const outcome = { status: 'unknown' as const, result: null };
  return shapeResult(outcome, { descriptor, timeoutSeconds: 0, maxChars: 0, unchangedText: '' });
}

function toolRecord(run: AgentRun, { callId }: RecordedCall, result: ShapedResult): ToolRecord {
  const images = result.images ? { images: result.images } : {};
  return { kind: 'tool', agentId: run.agentId, callId, text: result.text, isError: result.isError, ...images };
}

function invoke(
  run: AgentRun,
  { callId }: RecordedCall,
  descriptor: ToolDescriptor,
  args: Record<string, unknown>,
): ToolInvocation {
  const read = descriptor.tool_id === READ_TOOL ? readKey(args) : undefined;
  const held = read && run.state.run.reads.find(read.key);
  return {
    callId,
    toolId: descriptor.tool_id,
    args,
    effect: descriptor.effect,
    timeoutMs: timeoutSeconds(descriptor, args) * 1000,
    agentId: run.agentId,
    idempotencyKey: callId,
    ...(held ? { ifUnchanged: held.version } : {}),
  };
}

/** @returns why the call may not run; undefined if it may */
async function askConsent(
  run: AgentRun,
  invocation: ToolInvocation,
  descriptor: ToolDescriptor,
): Promise<string | undefined> {
  try {
    const answer = await run.ports.approvals.decide({ invocation, descriptor });
    return answer.decision === 'allow' ? undefined : answer.reason;
  } catch (error) {
    run.stop.throwIfAborted();
    return `nobody could be asked (${messageOf(error)})`;
  }
}

function unchangedText(run: AgentRun, { args }: ToolInvocation): string {
  const read = readKey(args);
  const held = read && run.state.run.reads.find(read.key);
  return `[${read?.path ?? 'The file'} is unchanged since you read it: see the result of call ${held?.callId ?? 'before'}]`;
}

/** What later calls need to know of this one. */
function sideEffects(invocation: ToolInvocation, outcome: ToolOutcome, result: ShapedResult): Partial<ToolRecord> {
  const changed = outcome.changedFiles?.length ? { changedFiles: outcome.changedFiles } : {};
  const read = invocation.toolId === READ_TOOL ? readKey(invocation.args) : undefined;
  const isComplete = outcome.status === 'ok' && !outcome.isUnchanged && result.isWhole && !isCutByTool(outcome.result);
  if (!read || !isComplete || !outcome.fileVersion) return changed;
  return { ...changed, read: { ...read, version: outcome.fileVersion } };
}

function isCutByTool(result: unknown): boolean {
  return typeof result === 'object' && result !== null && (result as { truncated?: unknown }).truncated === true;
}
