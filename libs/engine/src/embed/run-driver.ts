import { AbortedError } from '@margay/errors';
import { statusOf, type Head } from '@margay/log';
import { runAgent } from '../loop/run-agent';
import { RunStopped, type Journal } from '../ports';
import { NO_USAGE } from '../state/agent-state';
import { LocalTools } from '../tools/local-tools';
import { allowAll } from './allow-all';
import { submit } from './commands';
import type { DeltaEvent, EngineOptions, RunResult } from './engine-options';
import type { SessionLog } from './journal-on';
import { LogInbox } from './log-inbox';
import { LogJournal } from './log-journal';

const INSTANCE_CHARS = 16;
const COMMIT_ID_CHARS = 24;

/** Drives one run of a session in this process, from its claim to its end. */
export class RunDriver {
  inbox: LogInbox | undefined;
  result: Promise<RunResult> = Promise.reject(new Error('not started'));
  private readonly stop = new AbortController();
  private runId = '';
  private isOver = false;

  constructor(
    private readonly sessionId: string,
    private readonly options: EngineOptions,
    private readonly log: SessionLog,
    private readonly onDelta: (delta: DeltaEvent) => void,
  ) {
    this.result.catch(() => undefined); // replaced by start
  }

  /** @param head the log's end, with a run that is queued, or running on an owner that is given up */
  start(head: Head): void {
    this.runId = head.run?.id ?? '';
    this.result = this.drive(head).finally(() => {
      this.isOver = true;
      // Tools of this process that did not end with the run.
      this.stop.abort(new RunStopped('fenced'));
    });
  }

  isDriving(runId: string): boolean {
    return this.runId === runId && !this.isOver;
  }

  cancel(): void {
    this.stop.abort(new RunStopped('canceled'));
  }

  detach(): void {
    this.stop.abort(new RunStopped('drained'));
  }

  private async drive(head: Head): Promise<RunResult> {
    const claimed = await this.claim(head);
    const { epoch } = claimed;
    const { ids, clock, store, blobs, model, approvals = allowAll, tools = [] } = this.options;
    const { sessionId, runId, stop } = this;
    const inbox = (this.inbox = new LogInbox(store, sessionId, claimed, stop.signal));
    const outcome = await runAgent(
      {
        model,
        approvals,
        clock,
        ids,
        inbox,
        tools: new LocalTools(tools, { sessionId, epoch, stop: stop.signal }),
        journal: new LogJournal({
          ...this.log,
          store,
          blobs,
          clock,
          ids,
          inbox,
          tenantId: claimed.tenantId,
          sessionId,
          runId,
          epoch,
          onDelta: (delta) => this.onDelta(deltaEvent(delta)),
        }),
      },
      this.options,
    );
    if (outcome.outcome === 'stopped') return this.endedElsewhere(outcome.cause);
    const { outcome: _, ...result } = outcome;
    return { runId, ...result };
  }

  /** Makes the run this process's own: whoever drove it is fenced. */
  private async claim(head: Head): Promise<Head> {
    const { ids } = this.options;
    const { runId, sessionId } = this;
    let { epoch } = head;
    if (head.run?.state === 'running') {
      const taken = await submit(this.log.loop, sessionId, {
        kind: 'takeover',
        commitId: ids.hex(COMMIT_ID_CHARS),
        runId,
        epoch,
        cause: 'resumed by another process',
      });
      epoch = taken.head.epoch;
    }
    const owner = ids.hex(INSTANCE_CHARS);
    const command = { kind: 'claim' as const, commitId: ids.hex(COMMIT_ID_CHARS), runId, epoch, owner };
    return (await submit(this.log.loop, sessionId, command)).head;
  }

  /** A run that was stopped from outside ended in the log, or goes on with another owner. */
  private async endedElsewhere(cause: string): Promise<RunResult> {
    const { head } = await this.log.loop.confirmedTip(this.sessionId);
    const { lastRun } = head;
    if (lastRun?.id !== this.runId || head.run?.id === this.runId)
      throw new AbortedError('run_fenced', `run ${this.runId} was ${cause}: another process may go on with it`);
    const { doneReason } = lastRun;
    const text = doneReason === 'canceled' ? '(Run canceled by user)' : `(Run ended: ${doneReason})`;
    return { runId: this.runId, status: statusOf(head), doneReason, text, usage: NO_USAGE, steps: 0 };
  }
}

function deltaEvent(delta: Parameters<Journal['delta']>[0]): DeltaEvent {
  const { agentId, depth, step, offset, text } = delta;
  return { type: 'agent_message_delta', payload: { agent_id: agentId, depth, step, offset, text } };
}
