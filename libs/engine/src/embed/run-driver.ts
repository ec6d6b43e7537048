import type { StoredEvent } from '@margay/contracts';
import { AbortedError } from '@margay/errors';
import { statusOf, type Head } from '@margay/log';
import { runAgent } from '../loop/run-agent';
import { RunStopped, type Journal } from '../ports';
import { NO_USAGE } from '../state/agent-state';
import { LocalTools } from '../tools/local-tools';
import { allowAll } from './allow-all';
import type { DeltaEvent, EngineOptions, RunResult } from './engine-options';
import type { SessionLog } from './journal-on';
import { LogInbox } from './log-inbox';
import { LogJournal } from './log-journal';

const INSTANCE_CHARS = 16;
const COMMIT_ID_CHARS = 24;

/** Drives one run of a session in this process, from its claim to its end. */
export class RunDriver {
  inbox: LogInbox | undefined;
  readonly result: Promise<RunResult>;
  private readonly stop = new AbortController();
  private readonly sessionId: string;
  private readonly runId: string;
  private isOver = false;

  /** @param head the log's end, with a run that is queued, or running on an owner that is given up */
  constructor(
    head: Head,
    private readonly options: EngineOptions,
    private readonly log: SessionLog,
    private readonly onDelta: (delta: DeltaEvent) => void,
  ) {
    this.sessionId = head.sessionId;
    this.runId = head.run?.id ?? '';
    this.result = this.drive(head).finally(() => {
      this.isOver = true;
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
    if (!claimed) return this.endedElsewhere('claimed already');
    const { clock, ids, model, approvals = allowAll, tools = [] } = this.options;
    const { sessionId, runId, stop, log } = this;
    const { tenantId, epoch } = claimed;
    const inbox = (this.inbox = new LogInbox(log.store, sessionId, claimed, stop.signal));
    const onDelta = (delta: Delta): void => this.onDelta(deltaEvent(delta));
    const journal = new LogJournal({ ...log, clock, ids, inbox, tenantId, sessionId, runId, epoch, onDelta });
    const localTools = new LocalTools(tools, { sessionId, epoch });
    const ports = { model, approvals, clock, ids, inbox, journal, tools: localTools };
    const outcome = await runAgent(ports, this.options);
    if (outcome.outcome === 'stopped') return this.endedElsewhere(outcome.cause);
    const { outcome: _, ...result } = outcome;
    return { runId, ...result };
  }

  /** Makes the run this process's own, and fences whoever drove it. @returns undefined if it is not to be had any more */
  private async claim(head: Head): Promise<Head | undefined> {
    const { loop } = this.log;
    const { runId, sessionId } = this;
    const commitId = (): string => this.options.ids.hex(COMMIT_ID_CHARS);
    let { epoch } = head;
    if (head.run?.state === 'running') {
      const cause = 'drain';
      const taken = await loop.submit(sessionId, { kind: 'takeover', commitId: commitId(), runId, epoch, cause });
      if (!taken.ok) return undefined;
      epoch = taken.head.epoch;
    }
    const owner = this.options.ids.hex(INSTANCE_CHARS);
    const claimed = await loop.submit(sessionId, { kind: 'claim', commitId: commitId(), runId, epoch, owner });
    return claimed.ok ? claimed.head : undefined;
  }

  /** A run that was stopped from outside, or is not to be had, ended in the log or goes on with another owner. */
  private async endedElsewhere(cause: string): Promise<RunResult> {
    const { runId, sessionId } = this;
    const { head } = await this.log.loop.confirmedTip(sessionId);
    const { lastRun } = head;
    if (lastRun?.id !== runId || head.run?.id === runId)
      throw new AbortedError('run_fenced', `run ${runId} was ${cause}: another process may go on with it`);
    const status = statusOf({ ...head, run: null });
    return { runId, status, doneReason: lastRun.doneReason, text: await this.closingText(), usage: NO_USAGE, steps: 0 };
  }

  private async closingText(): Promise<string> {
    let text = '';
    for await (const { events } of this.log.store.range(this.sessionId, 1)) {
      for (const { frame } of events) {
        const event = JSON.parse(frame) as StoredEvent;
        if (event.type === 'assistant' && event.run_id === this.runId) ({ text } = event.payload);
      }
    }
    return text;
  }
}

type Delta = Parameters<Journal['delta']>[0];

function deltaEvent({ agentId, depth, step, offset, text }: Delta): DeltaEvent {
  return { type: 'agent_message_delta', payload: { agent_id: agentId, depth, step, offset, text } };
}
