import { OVER } from '../abort';
import type { Turn } from '../state/turn';
import type { AgentRun } from './agent-run';
import type { CallFacts } from './event-factory';
import { prepareCall, runCall, type FinishedCall, type PreparedCall } from './run-call';
import { nothing, type Carried } from './writer';

/**
 * Runs the calls of the open turn that have no result yet: consecutive ones that are safe side by side together, each
 * exclusive one alone.
 * @param acked settles once the commit that holds the calls is stored; calls that are not pure wait for it
 * @returns what is not stored yet; it goes into the commit that starts the next model call
 */
export async function runCalls(run: AgentRun, turn: Turn, acked: Promise<unknown>): Promise<Carried> {
  const results = new ResultGroups(run, turn);
  const interruptsBefore = run.interrupts;
  // Whoever interrupts a run that waits wants none of the calls that were still to come.
  const wasInterrupted = run.isWoken && hasUnreadInterrupt(run);
  const gate = { acked, isInterrupted: () => wasInterrupted || run.interrupts > interruptsBefore };
  const calls = turn.unanswered.map((call) => prepareCall(run, call, turn.record.model));
  for (const batch of batches(calls))
    await Promise.all(batch.map(async (call) => results.add(await runCall(run, call, gate))));
  return results.rest();
}

function hasUnreadInterrupt({ ports, consumedTo }: AgentRun): boolean {
  return ports.inbox.since(consumedTo).some(({ kind }) => kind === 'interrupt');
}

export function batches(calls: readonly PreparedCall[]): PreparedCall[][] {
  const all: PreparedCall[][] = [];
  let isOpen = false;
  for (const call of calls) {
    const isSafe = isConcurrencySafe(call);
    if (isSafe && isOpen) all.at(-1)?.push(call);
    else all.push([call]);
    isOpen = isSafe;
  }
  return all;
}

/** A call that does not run at all is in nobody's way. */
function isConcurrencySafe({ descriptor, prepared }: PreparedCall): boolean {
  return !descriptor || !prepared.ok || descriptor.concurrency_safe;
}

/** Results that exist but are not stored: each is stored soon, those that come together share a commit. */
class ResultGroups {
  private carried = nothing();
  private timer: AbortController | undefined;

  constructor(
    private readonly run: AgentRun,
    private readonly turn: Turn,
  ) {}

  add({ facts, result, durationMs, isDenied, record }: FinishedCall): void {
    if (isDenied) this.carried.events.push(this.run.events.denied(facts));
    this.carried.events.push(this.run.events.toolResult(facts, result, durationMs));
    if (result.outcome === 'unknown') this.carried.events.push(this.run.events.note(unknownNote(facts)));
    this.run.record(this.carried, record);
    if (!this.turn.isAnswered && !this.timer) void this.storeSoon();
  }

  /** After the last result. */
  rest(): Carried {
    this.timer?.abort(OVER);
    const { failed, calls } = this.turn;
    if (failed > 0)
      this.run.record(this.carried, {
        kind: 'note',
        agentId: this.run.agentId,
        cause: 'failures',
        text: failureNote(failed, calls.length),
      });
    return this.carried;
  }

  private async storeSoon(): Promise<void> {
    const { signal } = (this.timer = new AbortController());
    await this.run.ports.clock.sleep(this.run.limits.groupMs, signal);
    this.timer = undefined;
    if (signal.aborted || this.run.stop.aborted) return;
    const group = this.carried;
    this.carried = nothing();
    void this.run.writer.commit(group);
  }
}

/** The person learns of it, too: nobody but they may be able to look. */
function unknownNote({ call, toolId }: CallFacts): string {
  return `It is unknown whether call ${call.callId} of '${toolId}' took effect. It was not repeated; look before you do.`;
}

function failureNote(failed: number, all: number): string {
  return (
    `${failed}/${all} tool call(s) failed this step. Read the errors; correct the cause or take another way, ` +
    'and do not repeat a failing call unchanged.'
  );
}
