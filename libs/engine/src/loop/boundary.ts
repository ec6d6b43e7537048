import type { LogRecord } from '@margay/log';
import type { InboxItem } from '../ports';
import type { AgentRun } from './agent-run';
import type { Carried } from './writer';

/** Steps left at which the model is warned, once each. */
const WARN_AT_STEPS = [1, 5];

/** Tells the model when its steps run out: a warning first, at last the order to answer. */
export function checkStepBudget(run: AgentRun, carried: Carried): void {
  const { stepsLeft, agentId } = run;
  const { steps, warnedAt, isWrappingUp } = run.state.run;
  if (stepsLeft === undefined || steps === 0 || isWrappingUp) return;
  if (stepsLeft === 0) {
    run.record(carried, { kind: 'note', agentId, cause: 'wrap_up', text: WRAP_UP });
    return;
  }
  const threshold = WARN_AT_STEPS.find((at) => stepsLeft <= at);
  if (threshold === undefined || threshold >= warnedAt) return;
  const text =
    `Only ${stepsLeft} step(s) are left in this run's budget. ` +
    'Finish what matters most now and answer with what you have.';
  run.record(carried, { kind: 'note', agentId, cause: 'budget', threshold, text });
}

const WRAP_UP =
  "This run's step budget is used up. Answer now, in text only: what you found and did, what is missing, " +
  'and what should be done next. You cannot call tools any more.';

/**
 * Crosses from one step to the next in one commit: what is left of the last one, the messages that came, and the start
 * of the model call to come, unless that is stored already.
 * @returns number of the commit; the model call need not wait for it
 */
export function crossBoundary(
  run: AgentRun,
  carried: Carried,
  start: { step: number; boundTools: string[] | undefined } | undefined,
): Promise<number> {
  if (!run.state.run.isStarted) run.recordPrompt(carried);
  if (start)
    carried.events.push(
      run.events.callStart(start.step, run.models[0] ?? run.state.run.options.model, start.boundTools),
    );
  const consumedTo = drainInbox(run);
  if (carried.events.length + carried.records.length === 0 && consumedTo === undefined)
    return Promise.resolve(run.writer.storedC);
  return run.writer.commit({ ...carried, ...(consumedTo === undefined ? {} : { consumedTo }) });
}

/** The record by which the log holds an item. */
function inboxRecord(item: InboxItem): LogRecord {
  const { n, kind, text } = item;
  if (kind !== 'answer') return { kind: 'inbox', n, item: kind, text };
  return { kind: 'inbox', n, item: kind, text, callId: item.callId, outcome: item.outcome };
}

/** Puts the messages that came into the conversation. */
function drainInbox(run: AgentRun): number | undefined {
  const items = run.ports.inbox.since(run.consumedTo);
  const last = items.at(-1);
  if (!last) return undefined;
  for (const item of items) run.state.apply(inboxRecord(item));
  run.state.apply({ kind: 'consumed', to: last.n });
  run.consumedTo = last.n;
  return last.n;
}
