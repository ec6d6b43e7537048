import { acceptCommand, createCommand } from '@margay/testing';
import type { Command, LeaveCause } from './command';
import { decide } from './decide';
import { ALL_DECIDE_RULES, isRejected } from './decision';
import { emptyHead, type Head } from './head';

const RUN_ID = 'session:r1';
const MINUTE = 60 * 1_000_000;

/** One run over several owners; times in minutes. */
class Run {
  head: Head;
  private ids = 0;

  constructor() {
    this.head = emptyHead('session');
    this.submit(createCommand());
    this.submit(acceptCommand('question'));
  }

  submit(command: Command, minute = 0, rules = ALL_DECIDE_RULES): void {
    const decision = decide(this.head, command, minute * MINUTE, rules);
    if (isRejected(decision)) throw new Error(decision.reject.reason);
    this.head = { ...decision.head, c: this.head.c + 1 };
  }

  /** One owner: claims, perhaps stores something, and is lost. */
  life(cause: LeaveCause, minute: number, { isUseful = false, rules = ALL_DECIDE_RULES } = {}): this {
    const id = (): string => `c${this.ids++}`;
    this.submit({ kind: 'claim', commitId: id(), runId: RUN_ID, epoch: this.head.epoch, owner: 'r' }, minute);
    const { epoch } = this.head;
    const own = { commitId: id(), runId: RUN_ID, epoch };
    if (isUseful) this.submit({ kind: 'step', ...own, events: [], records: [] }, minute);
    this.submit({ kind: 'takeover', commitId: id(), runId: RUN_ID, epoch, cause }, minute, rules);
    return this;
  }
}

it('drives a run apart from others after its second loss, so that neighbours of a killer pass through once', () => {
  const run = new Run().life('crash', 0, { isUseful: true });
  expect(run.head.run).toMatchObject({ state: 'queued', losses: { suspicious: 1 } });
  expect(run.head.run?.isolated).toBeUndefined();
  expect(run.life('lease', 5, { isUseful: true }).head.run?.isolated).toBe(true);
});

it('parks a run that dies apart from others', () => {
  const run = new Run().life('crash', 0).life('crash', 1).life('died', 2);
  expect(run.head).toMatchObject({ run: null, lastRun: { id: RUN_ID, doneReason: 'error', failureReason: 'poison' } });
});

it('goes on with a run whose process apart outlived its runner', () => {
  const run = new Run().life('crash', 0).life('crash', 1).life('crash', 2);
  expect(run.head.run).toMatchObject({ state: 'queued', isolated: true, losses: { suspicious: 3 } });
});

it('gives a run up in the end under which whole runners die', () => {
  const run = new Run();
  for (let minute = 0; minute < 7; minute++) run.life('crash', minute);
  expect(run.head.run?.state).toBe('queued');
  expect(run.life('crash', 8).head.lastRun?.failureReason).toBe('poison');
});

it.each<LeaveCause>(['drain', 'unlisted', 'unavailable'])('never counts a %s', (cause) => {
  const run = new Run();
  for (let minute = 0; minute < 20; minute++) run.life(cause, minute);
  expect(run.head.run).not.toHaveProperty('losses');
});

it('forgets losses that lie ten minutes apart where the owner had stored something', () => {
  const useful = { isUseful: true };
  expect(new Run().life('crash', 0, useful).life('crash', 10, useful).head.run?.isolated).toBeUndefined();
  expect(new Run().life('crash', 0, useful).life('crash', 10).head.run?.isolated).toBe(true);
  const recovered = new Run().life('crash', 0).life('crash', 1).life('crash', 12, useful);
  expect(recovered.head.run).toMatchObject({ losses: { suspicious: 1 } });
  expect(recovered.head.run?.isolated).toBeUndefined();
});

it('counts a failure outside the engine like a loss', () => {
  const run = new Run().life('failed', 0).life('failed', 1);
  expect(run.head.run?.isolated).toBe(true);
  expect(run.life('failed', 2).head.lastRun?.failureReason).toBe('poison');
});
