import { askUserQuestion } from '@margay/engine';
import type { CommitDocument } from '@margay/log';
import type { Execution } from '../sandbox/effects-ledger';
import type { World } from '../world/world';

interface Intent {
  sessionId: string;
  storedAtMs: number;
}

interface StoredResult {
  text: string;
  outcome: string;
}

interface ToolEvent {
  type: string;
  payload: {
    tool_call_id: string;
    tool_id: string;
    result?: unknown;
    success?: boolean;
    outcome?: string;
    error?: string;
  };
}

/** What tools did to the world against what the log says of it. */
export function checkEffects(world: World, sessionId: string, documents: CommitDocument[]): void {
  for (const { _id, effects } of documents)
    for (const effect of effects)
      if (effect.kind === 'fence' && !world.effects.hasFence(sessionId, effect.epoch))
        world.fail('no fence', `${_id} owed one of epoch ${effect.epoch}`);
  const { intents, results } = callsOf(world, documents);
  for (const [callId, executions] of world.effects.executions) {
    if (!callId.startsWith(`${sessionId}.`)) continue;
    const intent = intents.get(callId);
    checkStarts(world, sessionId, executions, intent);
    checkOutcome(world, executions, results.get(callId));
  }
  for (const [callId, result] of results)
    if (result.outcome === 'ok' && !world.effects.executions.has(callId))
      world.fail('result from nowhere', `${callId} says ${result.text}`);
}

function callsOf(
  world: World,
  documents: CommitDocument[],
): { intents: Map<string, Intent>; results: Map<string, StoredResult> } {
  const intents = new Map<string, Intent>();
  const results = new Map<string, StoredResult>();
  for (const { _id, sessionId, events } of documents)
    for (const { frame } of events) {
      if (!frame.includes('"type":"tool_')) continue;
      const { type, payload } = JSON.parse(frame) as ToolEvent;
      const callId = payload.tool_call_id;
      if (type === 'tool_call')
        intents.set(callId, { sessionId, storedAtMs: world.store.entries.get(_id)?.acknowledgedAtMs ?? Infinity });
      // What a person says is judged with what they were asked.
      if (type !== 'tool_result' || payload.tool_id === askUserQuestion.tool_id) continue;
      if (results.has(callId)) world.fail('result twice', `${callId} again in ${_id}`);
      if (!intents.has(callId)) world.fail('result without a call', `${callId} in ${_id}`);
      const outcome = payload.success ? 'ok' : (payload.outcome ?? 'error');
      results.set(callId, { text: JSON.stringify(payload.result), outcome });
      world.count(`call ${outcome}`);
    }
  return { intents, results };
}

function checkStarts(world: World, sessionId: string, executions: Execution[], intent: Intent | undefined): void {
  for (const { callId, effect, epoch, incarnation, startedAtMs, effectAtMs } of executions) {
    if (effect !== 'pure' && !(intent && intent.storedAtMs <= startedAtMs))
      world.fail('effect without intent', `${callId} was started at ${startedAtMs.toFixed(1)}, before it was stored`);
    if (incarnation === undefined) continue;
    const fencedAtMs = world.effects.fenceOf(sessionId, epoch, startedAtMs, 'start');
    if (fencedAtMs !== undefined)
      world.fail('start behind a fence', `${callId} of epoch ${epoch}, fenced at ${fencedAtMs.toFixed(1)}`);
    if (effectAtMs !== undefined && world.effects.fenceOf(sessionId, epoch, effectAtMs, 'kill') !== undefined)
      world.fail('effect behind a kill', `${callId} of epoch ${epoch} took effect at ${effectAtMs.toFixed(1)}`);
  }
}

function checkOutcome(world: World, executions: Execution[], result: StoredResult | undefined): void {
  const [first] = executions;
  if (!first) return;
  const { callId, effect } = first;
  const took = executions.filter(({ effectAtMs }) => effectAtMs !== undefined).length;
  if (effect === 'unkeyed' && executions.length > 1)
    world.fail('unkeyed twice', `${callId} was started ${executions.length} times, ${JSON.stringify(executions)}`);
  if (!result) return;
  if (result.outcome === 'ok') {
    if (effect !== 'pure' && took === 0) world.fail('effect missing', `${callId} says ${result.text}`);
    if (!executions.some(({ text }) => result.text.includes(text)))
      world.fail('foreign result', `${callId} says ${result.text}`);
  } else if (result.outcome === 'error' && effect === 'unkeyed' && took > 0)
    world.fail('called failed', `${callId} took effect, and its result says ${result.text}`);
}
