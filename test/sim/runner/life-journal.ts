import { Journal, toItem, type InboxItem, type JournalRecord, type OpenedRun, type Progress } from '@margay/engine';
import {
  unpackRecord,
  type CommitDocument,
  type CommitOutcome,
  type Completion,
  type FinishCommand,
  type Head,
  type LeaveCause,
  type LogRecord,
  type OpenRecord,
  type ReleaseCommand,
  type RunnerCommand,
  type StepCommand,
} from '@margay/log';
import type { Replica } from '../session/replica';
import { Link } from '../world/link';
import { ProcessClock } from '../world/sim-process';
import type { RunLife } from './run-life';
import type { Runner } from './runner';

const OPEN_TIMEOUT_MS = 2_000;
/** An answer that does not come is asked for again over another journal. */
const ANSWER_TIMEOUT_MS = 4_000;

/** A runner's connection to the replica that serves its journal. */
export type JournalLink = Link<Runner, Replica>;

type Scoped = 'commitId' | 'runId' | 'epoch';
type Draft = Omit<StepCommand, Scoped> | Omit<FinishCommand, Scoped> | Omit<ReleaseCommand, Scoped>;
type Delta = Parameters<Journal['delta']>[0];

interface Unanswered {
  command: RunnerCommand;
  settle: (outcome: CommitOutcome) => void;
  fail: (error: Error) => void;
}

/** The journal of one run over links to replicas, with the rules of the runner's own: what has no answer is sent again. */
export class LifeJournal extends Journal {
  /** The open journal. */
  link: JournalLink | undefined;
  /** Answers of the model that the conversation holds. */
  answers = 0;
  /** Newest commit the runner knows of. */
  private knownC = 0;
  private sent = 0;
  private over: Error | undefined;
  private readonly unanswered = new Map<string, Unanswered>();
  private opening: { resolve: (opened: OpenedRun) => void; reject: (error: Error) => void } | undefined;

  constructor(private readonly life: RunLife) {
    super();
  }

  open(): Promise<OpenedRun> {
    return new Promise((resolve, reject) => {
      if (this.over) return reject(this.over);
      this.opening = { resolve, reject };
      this.life.runner.spawn(() => this.connectForEver());
    });
  }

  async commit(progress: Progress): Promise<number> {
    const { world } = this.life.runner;
    this.answers = answersIn(progress.records, this.answers);
    const stored = this.send({
      kind: 'step',
      ...(world.has('incarnationInLog') ? progress : withoutSandbox(progress)),
    });
    if (!world.has('storedBeforeActing')) return this.knownC;
    return (await stored).c;
  }

  async finish(progress: Progress, closing: { text: string; completion: Completion }): Promise<'finished' | 'inbox'> {
    const { events, records, consumedTo } = progress;
    const isNamed = consumedTo !== undefined && this.life.runner.world.has('finishNamesInbox');
    const consumed = isNamed ? { consumedTo } : {};
    const outcome = await this.send({ kind: 'finish', events, records, ...consumed, ...closing }, ['inbox']);
    if (!outcome.ok) this.life.runner.world.count('finish refused for unread messages');
    return outcome.ok ? 'finished' : 'inbox';
  }

  async wait(waiting: { for: string[]; inboxEnd: number }): Promise<'released' | 'changed'> {
    const outcome = await this.send({ kind: 'release', cause: 'waiting', waiting }, ['changed']);
    this.life.runner.world.count(outcome.ok ? 'release to wait' : 'release refused for a decision');
    return outcome.ok ? 'released' : 'changed';
  }

  async release(cause: LeaveCause): Promise<void> {
    await this.send({ kind: 'release', cause });
  }

  delta({ followsC, step }: Delta): void {
    const { link, life } = this;
    const { runner, runId, sessionId } = life;
    const ts = new ProcessClock(runner).nowMicros();
    const message = { kind: 'delta', sessionId, runId, step, c: followsC, ts } as const;
    if (link) link.send(link.other, () => runner.world.broker.publish(message));
  }

  /** Nothing is said or heard any more. */
  end(error: Error): void {
    if (this.over) return;
    this.over = error;
    this.opening?.reject(error);
    for (const { fail } of this.unanswered.values()) fail(error);
    this.unanswered.clear();
    this.link?.close();
  }

  onOpened(link: JournalLink, documents: CommitDocument[]): void {
    if (this.over) return link.close();
    this.link = link;
    const { head } = documents[documents.length - 1] as CommitDocument;
    const records = documents.flatMap(recordsOf);
    this.knownC = head.c;
    this.life.inbox.add(unreadOf(records, head));
    const { opening } = this;
    if (opening)
      this.answers = answersIn(
        records.map(({ record }) => record),
        0,
      );
    this.opening = undefined;
    opening?.resolve({ head, records });
    this.resend();
  }

  onAnswered(commitId: string, outcome: CommitOutcome): void {
    const waiting = this.unanswered.get(commitId);
    this.unanswered.delete(commitId);
    if (outcome.ok) this.knownC = Math.max(this.knownC, outcome.c);
    else if (outcome.rejection.reason === 'fenced') return this.life.stop('fenced');
    if (outcome.ok && waiting?.command.kind === 'step') this.noteAnswer(waiting.command);
    waiting?.settle(outcome);
  }

  private noteAnswer({ records }: StepCommand): void {
    const { runner, runId, epoch } = this.life;
    for (const record of records)
      if (record.kind === 'assistant') runner.world.prompts.answered(runId, epoch, Number(record.step));
  }

  /** @param mayBeRefused reasons that are no mistake */
  private send(draft: Draft, mayBeRefused: string[] = []): Promise<CommitOutcome & { c: number }> {
    const { runId, epoch, runner } = this.life;
    if (this.over) return Promise.reject(this.over);
    const scope = { commitId: `${runId}.${epoch}.${this.sent++}`, runId, epoch };
    // As it goes over the wire: nobody changes it any more.
    const command = JSON.parse(JSON.stringify({ ...draft, ...scope })) as RunnerCommand;
    return new Promise((resolve, fail) => {
      const settle = (outcome: CommitOutcome): void => {
        if (outcome.ok || mayBeRefused.includes(outcome.rejection.reason)) return resolve({ c: 0, ...outcome });
        runner.world.fail('runner refused', `${command.commitId}: ${outcome.rejection.reason}`);
        fail(new Error(outcome.rejection.message));
      };
      this.unanswered.set(command.commitId, { command, settle, fail });
      this.write(command);
      this.remind(command.commitId);
    });
  }

  private write(command: RunnerCommand): void {
    const { link, life } = this;
    if (link) link.send(link.other, () => void link.other.journals.commit(life, link, command));
  }

  private resend(): void {
    const all = [...this.unanswered.values()];
    if (!this.life.runner.world.has('sameIdOnResend')) {
      this.unanswered.clear();
      for (const each of all) {
        each.command = { ...each.command, commitId: `${each.command.commitId}.again` };
        this.unanswered.set(each.command.commitId, each);
      }
    }
    for (const { command } of all) this.write(command);
  }

  private remind(commitId: string): void {
    this.life.runner.after(ANSWER_TIMEOUT_MS, () => {
      if (this.over || !this.unanswered.has(commitId)) return;
      this.link?.close();
      this.remind(commitId);
    });
  }

  /** Keeps a journal open, each at a replica of its own choice. */
  private async connectForEver(): Promise<void> {
    const { runner } = this.life;
    const { random } = runner.world;
    while (!this.over) {
      const replica = random.pick(runner.replicas);
      const link = new Link(runner, replica);
      link.send(replica, () => replica.journals.open(this.life, link));
      runner.after(OPEN_TIMEOUT_MS, () => {
        if (this.link !== link) link.close();
      });
      await new Promise<void>((resolve) => link.onClose(runner, resolve));
      if (this.link === link) this.link = undefined;
      await runner.sleep(random.between(1, 50));
    }
  }
}

function recordsOf({ c, events, records }: CommitDocument): JournalRecord[] {
  const frames = events.map(({ frame }) => frame);
  return records.map((text) => ({ c, record: unpackRecord(text, frames) }));
}

/** The number of the last answer, within its run. */
function answersIn(records: readonly (LogRecord | OpenRecord)[], before: number): number {
  let answers = before;
  for (const record of records) {
    if (record.kind === 'run') answers = 0;
    if (record.kind === 'assistant' && 'step' in record) answers = Number(record.step);
  }
  return answers;
}

function unreadOf(records: JournalRecord[], head: Head): InboxItem[] {
  const consumedTo = head.run?.consumedTo ?? head.inboxEnd;
  return records
    .filter(({ record }) => record.kind === 'inbox' && Number(record.n) > consumedTo)
    .map(({ record }) => toItem(record as LogRecord & { kind: 'inbox' }));
}

function withoutSandbox({ sandbox: _, records, ...progress }: Progress): Progress {
  return {
    ...progress,
    records: records.map(({ incarnation: _incarnation, ...record }) => record as typeof record & { kind: string }),
  };
}
