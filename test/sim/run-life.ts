import type { EventInput } from '@margay/contracts';
import type { CommitDocument, CommitOutcome, FinishCommand, OpenRecord, RunnerCommand, StepCommand } from '@margay/log';
import { Link } from './link';
import type { Replica } from './replica';
import type { Assignment, Runner } from './runner';
import { ProcessClock } from './sim-process';

const OPEN_TIMEOUT_MS = 2_000;
/** An answer that does not come is asked for again over another journal. */
const ANSWER_TIMEOUT_MS = 4_000;
const SLICE_MS = 60;

/** A runner's connection to the replica that serves its journal. */
export type JournalLink = Link<Runner, Replica>;

type Draft = Omit<StepCommand, 'commitId' | 'runId' | 'epoch'> | Omit<FinishCommand, 'commitId' | 'runId' | 'epoch'>;
type RunnerDraft = Draft | { kind: 'release'; cause: string };

interface Unanswered {
  command: RunnerCommand;
  settle: (outcome: CommitOutcome) => void;
}

/** One run at one epoch on one runner, from its assignment until it ends, is given back, or is fenced. */
export class RunLife {
  readonly runId: string;
  readonly epoch: number;
  /** Newest commit the runner knows of. */
  lastC: number;
  isOver = false;
  isDraining = false;
  /** Newest message the runner knows of. */
  inboxEnd = 0;
  private interrupts = 0;
  private sent = 0;
  /** The open journal. */
  link: JournalLink | undefined;
  private readonly unanswered = new Map<string, Unanswered>();
  private onFirstOpened: (documents: CommitDocument[]) => void = () => undefined;
  private onOver: (() => void)[] = [];

  constructor(
    readonly runner: Runner,
    assignment: Assignment,
  ) {
    this.runId = assignment.runId;
    this.epoch = assignment.epoch;
    this.lastC = assignment.c;
  }

  /** Stops at once and writes nothing more. */
  abandon(): void {
    if (this.isOver) return;
    this.isOver = true;
    this.link?.close();
    for (const wake of this.onOver) wake();
  }

  onFenced(): void {
    if (!this.isOver) this.runner.world.count('runner fenced');
    this.abandon();
  }

  onInbox(inboxEnd: number): void {
    if (inboxEnd > this.inboxEnd) this.interrupts++;
    this.inboxEnd = Math.max(this.inboxEnd, inboxEnd);
  }

  onOpened(link: JournalLink, documents: CommitDocument[]): void {
    if (this.isOver) return link.close();
    this.link = link;
    this.onInbox((documents[documents.length - 1] as CommitDocument).head.inboxEnd);
    this.onFirstOpened(documents);
    for (const { command } of this.unanswered.values()) this.send(command);
  }

  onAnswered(commitId: string, outcome: CommitOutcome): void {
    const waiting = this.unanswered.get(commitId);
    this.unanswered.delete(commitId);
    if (outcome.ok) this.lastC = Math.max(this.lastC, outcome.c);
    else if (outcome.rejection.reason === 'fenced') return this.onFenced();
    waiting?.settle(outcome);
  }

  async drive(): Promise<void> {
    const { world } = this.runner;
    const over = new Promise<'over'>((resolve) => this.onOver.push(() => resolve('over')));
    const opened = new Promise<CommitDocument[]>((resolve) => (this.onFirstOpened = resolve));
    this.runner.spawn(() => this.connectForEver());
    const documents = await Promise.race([opened, over]);
    if (documents === 'over') return;
    const step = documents.flatMap(({ events }) => events).filter(({ frame }) => frame.includes(this.marker())).length;
    world.trace(this.runner.name, `drives ${this.runId} at epoch ${this.epoch} from step ${step}`);
    await Promise.race([this.steps(step), over]);
    this.abandon();
  }

  /** The text by which an `agent_message` of this run is known. */
  private marker(): string {
    return `"text":"thought of ${this.runId} `;
  }

  private async steps(from: number): Promise<void> {
    const { world } = this.runner;
    const plan = world.plans.stepsOf(this.runId);
    let underWay: Promise<CommitOutcome>[] = [];
    for (let step = from; ; step++) {
      if (this.isDraining) return void (await this.commit({ kind: 'release', cause: 'drained' }));
      const consumedTo = this.inboxEnd;
      const start: EventInput = { type: 'llm_call_start', payload: { agent_id: 'root', depth: 0, step, model: 'm' } };
      underWay.push(this.commit({ kind: 'step', events: [start], records: [], consumedTo }));
      await this.think(world.plans.isSlow(this.runId));
      // The model's answer is acted on only once all that came before it is stored.
      if (!(await Promise.all(underWay)).every(({ ok }) => ok) || this.isOver) return;
      if (step >= plan && (await this.finish(consumedTo))) return;
      const calls = step >= plan ? 0 : world.random.integer(0, 3);
      const answered = await this.commit({ kind: 'step', ...this.answer(step, calls) });
      if (!answered.ok || this.isOver) return;
      underWay = await this.runCalls(step, calls);
    }
  }

  /** Each result is committed when it is there; nobody waits for it. */
  private async runCalls(step: number, calls: number): Promise<Promise<CommitOutcome>[]> {
    const { runner } = this;
    const { random } = runner.world;
    const underWay: Promise<CommitOutcome>[] = [];
    for (let index = 0; index < calls && !this.isOver; index++) {
      await runner.sleep(random.chance(0.1) ? random.between(300, 6_000) : random.between(1, 250));
      underWay.push(this.commit({ kind: 'step', ...this.result(step, index) }));
    }
    return underWay;
  }

  /** @returns false where the model must see more messages first */
  private async finish(consumedTo: number): Promise<boolean> {
    const outcome = await this.commit({
      kind: 'finish',
      events: [],
      records: [{ kind: 'last', text: 'done' }],
      consumedTo,
      text: `answer of ${this.runId}`,
      completion: { done: true, done_reason: 'completed', task_result: null },
    });
    if (outcome.ok) return true;
    this.runner.world.count('finish refused for unread messages');
    this.onInbox(outcome.head.inboxEnd);
    return false;
  }

  /** A model call: publishes fragments, ends early when a message arrives. */
  private async think(isSlow: boolean): Promise<void> {
    const { runner } = this;
    const { world } = runner;
    const { interrupts } = this;
    const endMs =
      world.time.nowMs + (isSlow ? 30_000 : world.random.between(10, world.random.chance(0.1) ? 3_000 : 200));
    while (world.time.nowMs < endMs && !this.isOver && this.interrupts === interrupts) {
      await runner.sleep(Math.min(isSlow ? 500 : SLICE_MS, endMs - world.time.nowMs));
      if (world.random.chance(0.5)) this.publishDelta();
    }
  }

  private publishDelta(): void {
    const { link, lastC, runner } = this;
    const ts = new ProcessClock(runner).nowMicros();
    if (link) link.send(link.other, () => runner.world.broker.publish({ kind: 'delta', c: lastC, ts }));
  }

  private answer(step: number, calls: number): { events: EventInput[]; records: OpenRecord[] } {
    const text = `thought of ${this.runId} at step ${step}, epoch ${this.epoch}: ${'long '.repeat(step * 20)}`;
    const events: EventInput[] = [{ type: 'agent_message', payload: { agent_id: 'root', depth: 0, text } }];
    for (let index = 0; index < calls; index++)
      events.push({ type: 'tool_call', payload: { ...this.call(step, index), agent_id: 'root', model: 'm' } });
    return { events, records: [{ kind: 'answer', step, text, calls }] };
  }

  private result(step: number, index: number): { events: EventInput[]; records: OpenRecord[] } {
    const call = this.call(step, index);
    const result = `result ${index} of step ${step} ${'x'.repeat(index * 400)}`;
    const payload = { ...call, result, success: true, summary: 'ok', agent_id: 'root', model: 'm' };
    return {
      events: [{ type: 'tool_result', payload }],
      records: [{ kind: 'result', callId: call.tool_call_id, text: result }],
    };
  }

  private call(step: number, index: number): Record<'tool_id' | 'operation' | 'tool_input' | 'tool_call_id', string> {
    const tool_call_id = `${this.runId}.${this.epoch}.${step}.${index}`;
    return { tool_id: 'read_file', operation: 'read', tool_input: 'a', tool_call_id };
  }

  private commit(draft: RunnerDraft): Promise<CommitOutcome> {
    const { runner, runId, epoch } = this;
    const command: RunnerCommand = { ...draft, commitId: `${runId}.${epoch}.${this.sent++}`, runId, epoch };
    return new Promise((settle) => {
      this.unanswered.set(command.commitId, {
        command,
        settle: (outcome) => {
          if (!outcome.ok && outcome.rejection.reason !== 'inbox')
            runner.world.fail('runner refused', `${command.commitId}: ${outcome.rejection.reason}`);
          settle(outcome);
        },
      });
      this.send(command);
      this.remind(command.commitId);
    });
  }

  private send(command: RunnerCommand): void {
    const { link } = this;
    if (link) link.send(link.other, () => void link.other.journals.commit(this, link, command));
  }

  private remind(commitId: string): void {
    this.runner.after(ANSWER_TIMEOUT_MS, () => {
      if (this.isOver || !this.unanswered.has(commitId)) return;
      this.link?.close();
      this.remind(commitId);
    });
  }

  /** Keeps a journal open, each at a replica of its own choice. */
  private async connectForEver(): Promise<void> {
    const { runner } = this;
    const { random } = runner.world;
    while (!this.isOver) {
      const replica = random.pick(runner.replicas);
      const link = new Link(runner, replica);
      link.send(replica, () => replica.journals.open(this, link));
      runner.after(OPEN_TIMEOUT_MS, () => {
        if (this.link !== link) link.close();
      });
      await new Promise<void>((resolve) => link.onClose(runner, resolve));
      if (this.link === link) this.link = undefined;
      await runner.sleep(random.between(1, 50));
    }
  }
}
