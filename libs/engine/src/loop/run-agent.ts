import { untilAborted } from '../abort';
import { RunStopped, type EnginePorts, type StopCause } from '../ports';
import { AgentRun, type RunAgentOptions } from './agent-run';
import { haltOf, handle } from './answers';
import { askModel } from './ask-model';
import { checkStepBudget, crossBoundary } from './boundary';
import { failureClosing, tryFinish, type FinishedRun } from './closing';
import { expandReferences } from './expand-references';
import { messageOf } from './plain-text';
import { runCalls } from './run-calls';
import { nothing } from './writer';

export type RunOutcome =
  | FinishedRun
  /** Whoever stopped the run writes what is to be written. */
  | { outcome: 'stopped'; cause: StopCause };

/**
 * Drives the run of the journal from wherever its log ends to its completion: calls the model, runs the tools it asks
 * for, and stores everything before acting on it. See docs/protocol.md §4.
 *
 * It may be called again for the same run, at a later epoch, after any crash: finished calls are not repeated.
 * @returns how it ended; a failing model or tool is an outcome, not an exception
 * @throws what the journal threw, if that is not a RunStopped
 */
export async function runAgent(ports: EnginePorts, options: RunAgentOptions = {}): Promise<RunOutcome> {
  let run: AgentRun;
  try {
    run = await untilAborted(AgentRun.open(ports, options), ports.inbox.stop);
  } catch (error) {
    return stopped(error);
  }
  try {
    return await drive(run);
  } catch (error) {
    return await afterFailure(run, error);
  } finally {
    run.close();
  }
}

async function drive(run: AgentRun): Promise<FinishedRun> {
  const { openTurn } = run.state;
  let carried = openTurn ? await runCalls(run, openTurn, Promise.resolve()) : nothing();
  if (!openTurn && !run.state.run.isStarted) await expandReferences(run, carried);
  let isStartStored = !openTurn && run.state.run.isStarted;
  let lastTool = openTurn?.calls.at(-1)?.name ?? '';
  for (;;) {
    const halt = haltOf(run, lastTool);
    const ended = halt && (await tryFinish(run, carried, halt));
    if (ended) return ended;
    checkStepBudget(run, carried);
    const step = run.state.run.answers + 1;
    const { isWrappingUp } = run.state.run;
    const tools = isWrappingUp ? [] : run.tools.modelTools;
    // The tools are named where they change, not at every step.
    const boundTools = step === 1 || isWrappingUp ? tools.map(({ name }) => name) : undefined;
    const start = isStartStored ? undefined : { step, boundTools };
    const stored = crossBoundary(run, carried, start);
    const asked = await askModel(run, { step, tools, stored });
    await untilAborted(stored, run.stop);
    const next = await handle(run, step, asked);
    if ('ended' in next) return next.ended;
    carried = next.carried;
    isStartStored = false;
    if (asked.kind === 'answered') lastTool = asked.answer.toolCalls.at(-1)?.name ?? lastTool;
  }
}

/**
 * A mistake of the engine ends the run in words, and so does a commit that the log refuses: the next owner would write
 * the same. A run that is not ours any more is left alone.
 */
async function afterFailure(run: AgentRun, error: unknown): Promise<RunOutcome> {
  const { stop } = run.ports.inbox;
  const cause: unknown = run.stop.aborted ? run.stop.reason : error;
  if (cause instanceof RunStopped || stop.aborted) return stopped(cause);
  const closing = failureClosing('internal', `the engine failed: ${messageOf(cause)}`, []);
  try {
    const ended = await tryFinish(run, nothing(), closing, stop);
    if (ended) return ended;
  } catch (secondary) {
    return stopped(secondary instanceof RunStopped ? secondary : cause);
  }
  throw cause;
}

function stopped(error: unknown): RunOutcome {
  if (error instanceof RunStopped) return { outcome: 'stopped', cause: error.stopCause };
  throw error;
}
