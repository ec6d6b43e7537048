import type { EventInput, ToolDescriptor } from '@margay/contracts';
import { untilAborted } from '../abort';
import { SANDBOX_LOST, type SandboxWait, type ToolInvocation, type ToolOutcome, type WrongIncarnation } from '../ports';
import type { AgentRun } from './agent-run';
import { epochOfCall } from './call-ids';
import { messageOf } from './plain-text';
import { NO_INCARNATION } from './sandbox';
import { TimeLimit } from './time-limit';
import { nothing } from './writer';

const SANDBOXES_MAX = 5;

const failed = (error: string): ToolOutcome => ({ status: 'error', result: null, error });
const UNKNOWN: ToolOutcome = { status: 'unknown', result: null };
const LOST: ToolOutcome = { ...UNKNOWN, error: SANDBOX_LOST };

/** Runs a call to its outcome, in the sandbox that the run has committed to. Rejects only when the run is stopped. */
export async function execute(
  run: AgentRun,
  invocation: ToolInvocation,
  descriptor: ToolDescriptor,
): Promise<ToolOutcome> {
  if (!needsCommitment(descriptor)) return settled(await executeIn(run, invocation, descriptor, ''));
  for (let tries = 0; tries < SANDBOXES_MAX; tries += 1) {
    const incarnation = await run.sandbox.beforeCall();
    if (mayHaveRunElsewhere(run, invocation, incarnation)) return UNKNOWN;
    const outcome = await executeIn(run, invocation, descriptor, incarnation);
    if (outcome.status !== 'wrong_incarnation') {
      run.sandbox.observe(outcome.incarnation);
      return outcome;
    }
    const mayHaveRun = outcome.mayHaveRun === true && incarnation !== NO_INCARNATION;
    if (mayHaveRun && invocation.effect === 'unkeyed') return LOST;
    await run.sandbox.commitTo(outcome.incarnation);
  }
  return failed('the sandbox was replaced again and again; try later');

  function settled(outcome: ToolOutcome | WrongIncarnation): ToolOutcome {
    run.sandbox.observe(outcome.incarnation);
    return outcome.status === 'wrong_incarnation' ? failed('the sandbox was replaced; try again') : outcome;
  }
}

/** Calls outside a sandbox are guarded where they are made; pure ones may run anywhere. */
export function needsCommitment({ effect, placement }: ToolDescriptor): boolean {
  return effect !== 'pure' && placement === 'sandbox';
}

/**
 * Another epoch may have sent this unkeyed call to a sandbox that is not this one. Its own epoch knows better: there the
 * call was refused, or never sent; and so does the first owner after a wait.
 */
function mayHaveRunElsewhere(run: AgentRun, { effect, callId }: ToolInvocation, incarnation: string): boolean {
  if (effect !== 'unkeyed' || run.isWoken || epochOfCall(callId) === run.head.epoch) return false;
  const sentTo = run.state.openTurn?.incarnations ?? new Set();
  return sentTo.size > 1 || (sentTo.size === 1 && !sentTo.has(incarnation));
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
      return unanswered(descriptor, 'timed_out', 'no answer came in time');
    });
  const stopListening = onEnd(run, descriptor, (reason) => {
    call.abort(reason);
    limit.start(limits.cancelGraceMs, () => unanswered(descriptor, 'cancelled', reason.message));
  });
  restart();
  try {
    const onWaiting = (wait?: SandboxWait): void => {
      limit.stop();
      if (wait && !run.stop.aborted && run.sandbox.isNews(wait))
        void run.writer.commit({ ...nothing(), events: [run.events.sandboxState(wait)] });
    };
    const onNotice = (event: EventInput): void => {
      if (!run.stop.aborted) void run.writer.commit({ ...nothing(), events: [event] });
    };
    const options = { incarnation, signal: call.signal, onWaiting, onNotice, onStarted: restart };
    const executing = ports.tools.execute(invocation, options).catch((error: unknown) => broken(invocation, error));
    return await untilAborted(Promise.race([executing, limit.expired]), run.stop);
  } finally {
    limit.stop();
    stopListening();
  }
}

/** A sandbox has ended what it was told to end; of an effect elsewhere nobody knows how far it came. */
function unanswered(descriptor: ToolDescriptor, status: 'timed_out' | 'cancelled', error: string): ToolOutcome {
  if (descriptor.placement === 'outside' && descriptor.effect !== 'pure') return { ...UNKNOWN, error };
  return status === 'timed_out' ? { status, result: null } : { status, result: null, error };
}

/** Calls back when the call must end: the run is stopped, or a person interrupted a tool that lets itself be. */
function onEnd(run: AgentRun, descriptor: ToolDescriptor, end: (reason: Error) => void): () => void {
  const onStop = (): void => end(run.stop.reason as Error);
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
