import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Session } from '@margay/client';
import { runnersPb } from '@margay/contracts';
import { createLogger, grpcClient, KeyRing, systemPrincipal, type GrpcClient } from '@margay/platform';
import type { PlatformHarness } from '../harness';

type Runners = GrpcClient<typeof runnersPb.RunnersDefinition>;
type AttachStream = ReturnType<Runners['attach']>;
type JournalStream = ReturnType<Runners['journal']>;
type Committed = runnersPb.JournalCommitted;

export interface WrittenEvent {
  type: string;
  payload: Record<string, unknown>;
}

const HEARTBEAT_MS = 2_000;
const SLOTS = 1_000;
const AGENT = { agent_id: 'e2e000000000', depth: 0 };

export const note = (text: string): WrittenEvent => ({ type: 'run_note', payload: { text } });

/** For the platform that it writes to: it does not come back to a server that closes its connection, as runners do. */
export const WRITER_ENV = { MARGAY_GRPC_CONNECTION_AGE_SECONDS: '3600' };

/** Plays a runner: it takes every run and writes what a test tells it, when it tells it. */
export class LogWriter {
  private readonly stream: AttachStream;
  private readonly timer: NodeJS.Timeout;
  private readonly waiting = new Map<string, (assign: runnersPb.Assign) => void>();
  private readonly runs: runnersPb.HeldRun[] = [];
  private beat = 0;

  static async start(margay: PlatformHarness): Promise<LogWriter> {
    const keys = await KeyRing.load(join(margay.home, 'keys'), 'agent-runner');
    const logger = createLogger({ service: 'e2e', level: 'off' });
    const address = margay.platform.serviceAddress('session');
    return new LogWriter(grpcClient(runnersPb.RunnersDefinition, address, { keys, logger }), margay.database);
  }

  private constructor(
    private readonly client: Runners,
    pool: string,
  ) {
    this.stream = client.attach({ principal: systemPrincipal('agent-runner', '_platform') });
    this.stream.on('data', ({ message }: runnersPb.AttachResponse) => {
      if (message?.$case === 'assign') this.waiting.get(message.value.sessionId)?.(message.value);
    });
    // The end of the platform cuts it.
    this.stream.on('error', () => undefined);
    const hello = { instance: randomBytes(8).toString('hex'), pool, slots: SLOTS, version: 'e2e' };
    this.stream.write({ message: { $case: 'hello', value: hello } });
    this.timer = setInterval(() => this.heartbeat(), HEARTBEAT_MS);
  }

  /** Starts a run in the session and takes it. */
  async take(session: Session): Promise<WrittenRun> {
    const assigned = new Promise<runnersPb.Assign>((resolve) => this.waiting.set(session.id, resolve));
    await session.query('go');
    const assign = await assigned;
    this.waiting.delete(session.id);
    const { sessionId, runId, epoch } = assign;
    this.runs.push({ sessionId, runId, epoch });
    const run = new WrittenRun(this.client.journal({ grant: assign.grant }), assign);
    await run.opened;
    return run;
  }

  async stop(): Promise<void> {
    clearInterval(this.timer);
    this.stream.cancel();
    this.client.close();
    await sleep(0);
  }

  private heartbeat(): void {
    this.beat += 1;
    const value = { beat: this.beat, freeSlots: SLOTS - this.runs.length, runs: this.runs };
    this.stream.write({ message: { $case: 'heartbeat', value } });
  }
}

/** A run whose log is written by hand. */
export class WrittenRun {
  readonly opened: Promise<void>;
  private readonly pending = new Map<string, { done: (answer: Committed) => void; failed: (error: Error) => void }>();
  private count = 0;
  private c = 0;

  constructor(
    private readonly stream: JournalStream,
    private readonly assign: runnersPb.Assign,
  ) {
    stream.on('error', () => undefined);
    this.opened = new Promise((resolve) => {
      stream.on('data', ({ message }: runnersPb.JournalResponse) => this.hear(message, resolve));
    });
    const { sessionId, runId, epoch, grant } = assign;
    stream.write({ message: { $case: 'open', value: { sessionId, runId, epoch, grant, haveC: 0 } } });
  }

  get sessionId(): string {
    return this.assign.sessionId;
  }

  /** One commit. */
  write(...events: WrittenEvent[]): Promise<Committed> {
    return this.send({ kind: 'step', events });
  }

  async finish(): Promise<void> {
    await this.send({ kind: 'finish', text: 'done', completion: { done: true, done_reason: 'completed', task_result: 'done' } }); // prettier-ignore
    this.stream.end();
  }

  /** A fragment of the step that began with the last commit. */
  delta(text: string, offset: number): void {
    const { agent_id: agentId, depth } = AGENT;
    const value = { agentId, depth, step: 1, offset, text, followsC: this.c };
    this.stream.write({ message: { $case: 'delta', value } });
  }

  private send(command: { kind: string; [field: string]: unknown }): Promise<Committed> {
    this.count += 1;
    const commitId = `${this.assign.runId}.${this.assign.epoch}.${this.count}`;
    return new Promise((done, failed) => {
      this.pending.set(commitId, { done, failed });
      this.stream.write({ message: { $case: 'commit', value: { commitId, commandJson: JSON.stringify(command) } } });
    });
  }

  private hear(message: runnersPb.JournalResponse['message'], opened: () => void): void {
    if (message?.$case === 'opened' && message.value.last) return opened();
    if (message?.$case === 'committed') {
      this.c = Math.max(this.c, message.value.c);
      this.take(message.value.commitId)?.done(message.value);
    } else if (message?.$case === 'rejected') {
      this.take(message.value.commitId)?.failed(new Error(`commit refused: ${message.value.message}`));
    } else if (message?.$case === 'fenced') {
      for (const commitId of [...this.pending.keys()]) this.take(commitId)?.failed(new Error('the run was taken over'));
    }
  }

  private take(commitId: string) {
    const pending = this.pending.get(commitId);
    this.pending.delete(commitId);
    return pending;
  }
}

/** The call of a model that the step's fragments belong to. */
export const callStart = (): WrittenEvent => ({
  type: 'llm_call_start',
  payload: { ...AGENT, step: 1, model: 'scripted' },
});
