import type { ToolDescriptor } from '@margay/contracts';
import { untilAborted } from '../abort';
import { RunStopped, type ToolInvocation, type ToolOutcome, type WrongIncarnation } from '../ports';
import type { AgentRun } from './agent-run';
import { epochOfCall } from './call-ids';
import { messageOf } from './plain-text';
import { TimeLimit } from './time-limit';

const SANDBOXES_MAX = 5;

const failed = (error: string): ToolOutcome => ({ status: 'error', result: null, error });
const UNKNOWN: ToolOutcome = { status: 'unknown', result: null };

/** Runs a call to its outcome, in the sandbox that the run has committed to. Rejects only when the run is stopped. */
export async function execute(
  run: AgentRun,
  invocation: ToolInvocation,
  descriptor: ToolDescriptor,
): Promise<ToolOutcome> {
  if (invocation.effect === 'pure') return settled(await executeIn(run, invocation, descriptor, ''));
  if (mayHaveRunElsewhere(run, invocation)) return UNKNOWN;
  for (let tries = 0; tries < SANDBOXES_MAX; tries += 1) {
    const outcome = await executeIn(run, invocation, descriptor, await run.sandbox.beforeCall());
    if (outcome.status !== 'wrong_incarnation') {
      run.sandbox.observe(outcome.incarnation);
      return outcome;
    }
    if (mayHaveBeenSent(run, invocation)) return UNKNOWN;
    await run.sandbox.commitTo(outcome.incarnation);
    run.state.apply({ kind: 'sandbox', incarnation: outcome.incarnation });
  }
  return failed('the sandbox was replaced again and again; try later');

  function settled(outcome: ToolOutcome | WrongIncarnation): ToolOutcome {
    run.sandbox.observe(outcome.incarnation);
    return outcome.status === 'wrong_incarnation' ? failed('the sandbox was replaced; try again') : outcome;
  }
}

/** Another epoch may have sent this unkeyed call to the sandbox it had committed to, and this is not that one. */
function mayHaveBeenSent(run: AgentRun, { effect, callId }: ToolInvocation): boolean {
  if (effect !== 'unkeyed' || epochOfCall(callId) === run.head.epoch) return false;
  return (run.state.openTurn?.incarnations.size ?? 0) > 0;
}

/** … and there were several, so that no sandbox can tell whether it ran in another. */
function mayHaveRunElsewhere(run: AgentRun, invocation: ToolInvocation): boolean {
  return mayHaveBeenSent(run, invocation) && (run.state.openTurn?.incarnations.size ?? 0) > 1;
}

async function executeIn(
  run: AgentRun,
  invocation: ToolInvocation,
  descriptor: ToolDescriptor,
  incarnation: string,
): Promise<ToolOutcome | WrongIncarnation> {
  const { ports, limits } = run;
  const call = new AbortController();
  const limit = new TimeLimit<ToolOutcome>(ports.clock);
  const restart = (): void =>
    limit.start(invocation.timeoutMs, () => {
      call.abort(new Error('timed out'));
      return { status: 'timed_out', result: null };
    });
  const stopListening = onEnd(run, descriptor, (reason) => {
    call.abort(reason);
    limit.start(limits.cancelGraceMs, () => ({ status: 'cancelled', result: null, error: reason.message }));
  });
  restart();
  try {
    const options = { incarnation, signal: call.signal, onWaiting: () => limit.stop(), onStarted: restart };
    const executing = ports.tools.execute(invocation, options).catch((error: unknown) => broken(invocation, error));
    return await untilAborted(Promise.race([executing, limit.expired]), run.stop);
  } finally {
    limit.stop();
    stopListening();
  }
}

/**
 * Calls back when the call must end: the run was cancelled, or a person interrupted a tool that lets itself be. A call
 * of a run that was fenced or handed over is left to the next owner.
 */
function onEnd(run: AgentRun, descriptor: ToolDescriptor, end: (reason: Error) => void): () => void {
  const onStop = (): void => {
    const { reason } = run.stop as { reason: unknown };
    if (reason instanceof RunStopped && reason.stopCause === 'canceled') end(reason);
  };
  run.stop.addEventListener('abort', onStop, { once: true });
  const stopListening =
    descriptor.interrupt_behavior === 'cancel'
      ? run.onInterrupt(() => end(new Error('interrupted by the user')))
      : () => undefined;
  return () => {
    run.stop.removeEventListener('abort', onStop);
    stopListening();
  };
}

/** The port itself failed, so nobody knows how far an unkeyed call came. */
function broken({ effect, toolId }: ToolInvocation, error: unknown): ToolOutcome {
  const message = messageOf(error);
  if (effect === 'unkeyed') return { ...UNKNOWN, error: message };
  return failed(`'${toolId}' could not be run: ${message}`);
}
