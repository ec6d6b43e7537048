import { allowAll, RunStopped, runAgent, type InboxItem, type RunOutcome, type StopCause } from '@margay/engine';
import type { CommitDocument, CommitOutcome } from '@margay/log';
import { LifeJournal, type JournalLink } from './life-journal';
import { LifeModel } from './life-model';
import { LifeClock, LifeIds, LifeInbox } from './life-ports';
import { LifeTools } from './life-tools';
import type { Assignment, Runner } from './runner';

/** Less patient than in service, so that more happens. */
const LIMITS = { attempts: 2, backoffBaseMs: 200, backoffMaxMs: 1_000, waitGraceMs: 800 };

/** One run at one epoch on one runner: the real engine with ports into this world, until it ends, is handed over, or fenced. */
export class RunLife {
  readonly sessionId: string;
  readonly runId: string;
  readonly epoch: number;
  readonly inbox = new LifeInbox();
  readonly clock: LifeClock;
  readonly journal: LifeJournal;
  private readonly tools: LifeTools;
  /** When its model was last seen at work. */
  modelAtMs = 0;

  constructor(
    readonly runner: Runner,
    readonly assignment: Assignment,
  ) {
    this.sessionId = assignment.sessionId;
    this.runId = assignment.runId;
    this.epoch = assignment.epoch;
    this.clock = new LifeClock(runner);
    this.journal = new LifeJournal(this);
    this.tools = new LifeTools(this);
  }

  get isOver(): boolean {
    return this.inbox.stop.aborted;
  }

  /** The open journal. */
  get link(): JournalLink | undefined {
    return this.journal.link;
  }

  get nextStep(): number {
    return this.journal.answers + 1;
  }

  /** Newest message the runner knows of. */
  get inboxEnd(): number {
    return this.inbox.end;
  }

  /** The process apart that drives it is gone, as it is under a run that kills. */
  die(): void {
    const { runner } = this;
    this.stop('fenced');
    runner.after(runner.world.random.between(5, 500), () => runner.onDied(this));
  }

  stop(cause: StopCause): void {
    if (!this.isOver && cause === 'fenced') this.runner.world.count('runner fenced');
    this.inbox.stopFor(cause);
    // A run that is to be handed over still has its last words.
    if (cause !== 'drained') this.journal.end(new RunStopped(cause));
  }

  onInbox(items: readonly InboxItem[]): void {
    this.inbox.add(items);
  }

  onOpened(link: JournalLink, documents: CommitDocument[]): void {
    this.journal.onOpened(link, documents);
  }

  onAnswered(commitId: string, outcome: CommitOutcome): void {
    this.journal.onAnswered(commitId, outcome);
  }

  sawModelAt(nowMs: number): void {
    this.modelAtMs = nowMs;
  }

  async drive(): Promise<void> {
    const { runner, runId, epoch } = this;
    const { world } = runner;
    world.trace(runner.name, `drives ${runId} at epoch ${epoch}`);
    const outcome = await this.runAgent();
    world.trace(runner.name, `leaves ${runId} at epoch ${epoch}: ${describe(outcome)}`);
    world.count(`run ${describe(outcome)}`);
    if (outcome.outcome === 'stopped' && outcome.cause === 'drained') await this.handOver();
    this.journal.end(new RunStopped('fenced'));
    this.tools.close();
  }

  private runAgent(): Promise<RunOutcome> {
    const { inbox, clock, journal, tools, runner } = this;
    const model = new LifeModel(this);
    const ports = { model, tools, journal, inbox, approvals: allowAll, clock, ids: new LifeIds(runner) };
    return runAgent(ports, { limits: LIMITS });
  }

  private async handOver(): Promise<void> {
    try {
      await this.journal.release(this.runner.world.has('drainsNeverCount') ? 'drain' : 'failed');
    } catch (error) {
      if (!(error instanceof RunStopped)) throw error;
    }
  }
}

function describe(outcome: RunOutcome): string {
  return outcome.outcome === 'finished' ? `finished ${outcome.doneReason}` : `stopped ${outcome.cause}`;
}
