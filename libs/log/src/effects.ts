import { bindingOf } from './decide-bind';
import type { Effect, RunRowState } from './document';
import type { Head, HeadQuestion, HeadRun } from './head';

/** Every so many commits the session's row is refreshed, so that its number stays a useful lower bound. */
const PROJECT_EVERY = 64;

/**
 * Writes owed to other documents after a commit; a function of the heads before and after it.
 * @param asked questions that the commit opens; one may be closed by it, too
 */
export function effectsOf(
  before: Head,
  after: Head,
  asked: readonly { callId: string; ts: number }[] = newQuestions(before, after),
): Effect[] {
  const effects: Effect[] = [];
  if (projectedFieldsDiffer(before, after) || after.c % PROJECT_EVERY === 0) effects.push({ kind: 'session' });
  effects.push(...runEffects(before, after));
  const fence = fenceEffect(before, after);
  if (fence) effects.push(fence);
  if (hasLeft(before, after)) effects.push({ kind: 'leave', epoch: after.epoch });
  effects.push(...asked.map(({ callId, ts }) => ({ kind: 'question' as const, callId, ts })));
  return effects;
}

function newQuestions(before: Head, after: Head): HeadQuestion[] {
  const known = new Set(before.questions?.map(({ callId }) => callId));
  return (after.questions ?? []).filter(({ callId }) => !known.has(callId));
}

/** Whether the session's next call is made in another workspace; while a run is active that is not yet so. */
function hasLeft(before: Head, after: Head): boolean {
  if (after.run || before.c === 0 || before.runNo === 0) return false;
  const [left, next] = [bindingOf(before), after.binding];
  return left.project !== next.project || left.cwd !== next.cwd;
}

function projectedFieldsDiffer(before: Head, after: Head): boolean {
  return (
    before.c === 0 ||
    before.title !== after.title ||
    before.context !== after.context ||
    before.tag !== after.tag ||
    before.terminated !== after.terminated ||
    before.lastRun !== after.lastRun ||
    before.run?.id !== after.run?.id ||
    before.run?.state !== after.run?.state ||
    before.questions !== after.questions
  );
}

function runEffects(before: Head, after: Head): Effect[] {
  const effects: Effect[] = [];
  if (before.run && before.run.id !== after.run?.id) effects.push(row(before.run, 'done', after.epoch, null));
  // A run accepted and ended within one commit leaves no row to correct: it was never queued.
  const changed =
    after.run &&
    (before.run?.id !== after.run.id ||
      before.epoch !== after.epoch ||
      before.run.state !== after.run.state ||
      before.questions !== after.questions);
  if (after.run && changed) effects.push(row(after.run, after.run.state, after.epoch, after.run.owner));
  return effects;
}

function row(run: HeadRun, state: RunRowState, epoch: number, owner: string | null): Effect {
  return { kind: 'run', runId: run.id, state, epoch, owner };
}

/**
 * Whoever drove the run until now must not start further calls; also where the same commit gives it to another. What a
 * run left running while it waited ends with it.
 */
function fenceEffect(before: Head, after: Head): Effect | undefined {
  if (!before.run || before.epoch === after.epoch) return undefined;
  const kill = after.run?.id !== before.run.id;
  if (before.run.state !== 'running' && !kill) return undefined;
  return { kind: 'fence', runId: before.run.id, epoch: after.epoch, kill };
}
