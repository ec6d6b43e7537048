import { FailedPreconditionError, UnavailableError } from '@margay/errors';
import { acceptCommand, createCommand, hashed, messageCommand } from '@margay/testing';
import { fold } from './build';
import { LogClock } from './clock';
import type { Command, RunnerCommand } from './command';
import { CommitLoop } from './commit-loop';
import { tipOf, type CommitDocument } from './document';
import { MemoryCommitStore } from './memory-store';
import type { CommitOutcome } from './outcome';
import { COMMIT_MAX_BYTES } from './size';

const SESSION = 'session';
const RUN_ID = 'session:r1';

/** Sleeping takes no real time; it moves the clock. */
class SleeplessClock extends LogClock {
  nowMs = 0;
  slept: number[] = [];

  nowMicros(): number {
    return 1_700_000_000_000_000 + this.nowMs * 1_000;
  }

  monotonicMs(): number {
    return this.nowMs;
  }

  async sleep(ms: number): Promise<void> {
    this.slept.push(ms);
    this.nowMs += ms;
    await new Promise(setImmediate);
  }

  random(): number {
    return 0.5;
  }
}

type Fate = 'lost' | 'acknowledgement lost' | 'named as taken';

/** A memory store whose next inserts meet what a test says, and whose plain reads may be blind for a while. */
class FatefulStore extends MemoryCommitStore {
  readonly fates: Fate[] = [];
  readonly inserts: string[] = [];
  readonly calls: string[] = [];
  /** Plain reads see commits up to this number only. */
  visible = Infinity;
  /** Plain reads find no commit id. */
  isLookupBlind = false;
  /** Holds inserts back until it resolves. */
  gate: Promise<void> = Promise.resolve();
  onInsert: (document: CommitDocument) => Promise<unknown> | void = () => undefined;

  override async insert(document: CommitDocument): Promise<'inserted' | 'exists'> {
    this.inserts.push(JSON.stringify(document));
    await this.gate;
    await this.onInsert(document);
    const fate = this.fates.shift();
    if (fate === 'named as taken') return 'exists';
    if (fate !== 'lost') {
      const outcome = await super.insert(document);
      if (fate === undefined) return outcome;
    }
    throw new Error('no answer');
  }

  override async readNumber(sessionId: string, c: number, options: { linearizable?: boolean } = {}) {
    this.calls.push(`read ${c}${options.linearizable ? ' linearizable' : ''}`);
    return c > this.visible && !options.linearizable ? undefined : super.readNumber(sessionId, c);
  }

  override async findByCommitId(sessionId: string, commitId: string, options: { linearizable?: boolean } = {}) {
    this.calls.push(`find ${commitId}${options.linearizable ? ' linearizable' : ''}`);
    const found = await super.findByCommitId(sessionId, commitId);
    const isHidden = this.isLookupBlind || (found?.c ?? 0) > this.visible;
    return isHidden && !options.linearizable ? undefined : found;
  }

  override async lowerBound(sessionId: string): Promise<number> {
    return Math.min(this.visible, await super.lowerBound(sessionId));
  }
}

let store: FatefulStore;
let clock: SleeplessClock;
let loop: CommitLoop;
let announced: CommitDocument[];

beforeEach(async () => {
  store = new FatefulStore();
  clock = new SleeplessClock();
  announced = [];
  loop = newLoop();
  await submit(createCommand());
  store.inserts.length = 0;
  store.calls.length = 0;
  announced.length = 0;
});

function newLoop(): CommitLoop {
  return new CommitLoop({ store, clock, onCommitted: (document) => announced.push(document) });
}

function submit(command: Command, timeoutMs?: number, by = loop): Promise<CommitOutcome> {
  return by.submit(SESSION, command, timeoutMs === undefined ? {} : { timeoutMs });
}

async function log(): Promise<CommitDocument[]> {
  const documents: CommitDocument[] = [];
  for await (const document of store.range(SESSION, 1)) documents.push(document);
  return documents;
}

/** Holds inserts back until the returned function is called. */
function holdInserts(): () => void {
  let release = (): void => undefined;
  store.gate = new Promise((resolve) => (release = resolve));
  return release;
}

const reasonOf = (outcome: CommitOutcome) => (outcome.ok ? `stored at ${outcome.c}` : outcome.rejection.reason);
const interrupt: Command = { kind: 'interrupt', commitId: 'interrupt' };
const cancel: Command = { kind: 'cancel', commitId: 'cancel' };
const step = (n: number, fields: object = {}): RunnerCommand => ({
  kind: 'step',
  commitId: `${RUN_ID}.2.${n}`,
  runId: RUN_ID,
  epoch: 2,
  events: [],
  records: [],
  ...fields,
});

async function startRun(): Promise<void> {
  await submit(acceptCommand('question'));
  await submit({ kind: 'claim', commitId: 'claim', runId: RUN_ID, epoch: 1, owner: 'runner' });
  // The loop has taken note that nothing waits.
  await new Promise(setImmediate);
}

describe('CommitLoop', () => {
  it('stores a command, announces it, then answers with the head after it', async () => {
    const outcome = await submit(acceptCommand('question'));
    expect(outcome).toMatchObject({ ok: true, c: 2, replayed: false, answer: { run_id: RUN_ID }, head: { c: 2 } });
    expect(announced).toEqual([(await log())[1]]);
  });

  it('puts commands that come during an insert into one document, in order', async () => {
    const release = holdInserts();
    const outcomes = [
      submit(acceptCommand('first')),
      submit(messageCommand('second')),
      submit(messageCommand('third')),
    ];
    release();
    expect((await Promise.all(outcomes)).map(reasonOf)).toEqual(['stored at 2', 'stored at 3', 'stored at 3']);
    expect((await log()).map(({ commitIds }) => commitIds)).toEqual([['create'], ['first'], ['second', 'third']]);
  });

  it('answers a second copy in a batch like the first, and stores it once', async () => {
    const release = holdInserts();
    const commands = ['a', 'b', 'b', 'b'].map((text) => messageCommand(text));
    const outcomes = commands.map((command) => submit(command));
    release();
    const [, first, ...copies] = await Promise.all(outcomes);
    expect(copies).toEqual([first, first]);
    expect((await log()).flatMap(({ commitIds }) => commitIds)).toEqual(['create', 'a', 'b']);
  });

  it('refuses another body under the same commit id, in the same batch and later', async () => {
    const release = holdInserts();
    const other = { ...messageCommand('other'), commitId: 'b' };
    const outcomes = [submit(messageCommand('a')), submit(messageCommand('b')), submit(other)];
    release();
    expect((await Promise.all(outcomes)).map(reasonOf)).toEqual([
      'stored at 2',
      'stored at 3',
      'idempotency_key_reused',
    ]);
    expect(reasonOf(await submit(other))).toBe('idempotency_key_reused');
    expect(reasonOf(await submit({ ...acceptCommand('yet another'), commitId: 'b' }))).toBe('idempotency_key_reused');
  });

  it('answers a repeat from the document that holds it, also where it would be refused by now', async () => {
    const first = await submit(acceptCommand('question'));
    const again = await submit(acceptCommand('question'), undefined, newLoop());
    expect(again).toEqual({ ...first, replayed: true });
    expect(await log()).toHaveLength(2);
  });

  it('answers a repeat of a stored command even where a plain lookup does not show it yet', async () => {
    const first = await submit(acceptCommand('question'));
    store.isLookupBlind = true;
    expect(await submit(acceptCommand('question'), undefined, newLoop())).toEqual({ ...first, replayed: true });
  });

  it('keeps the rest of a batch when one of it is stored already', async () => {
    await submit(messageCommand('a'));
    const other = newLoop();
    const release = holdInserts();
    const outcomes = ['x', 'a', 'b'].map((text) => submit(messageCommand(text), undefined, other));
    release();
    expect((await Promise.all(outcomes)).map(reasonOf)).toEqual(['stored at 3', 'stored at 2', 'stored at 4']);
  });

  it('decides a refusal inside a batch again, alone, once the document is known', async () => {
    const release = holdInserts();
    const outcomes = [
      submit(messageCommand('a')),
      submit(acceptCommand('b')),
      submit(cancel),
      submit(acceptCommand('c')),
    ];
    release();
    // `b` is refused by the head on which it was decided at last: that of `c`.
    expect((await Promise.all(outcomes)).map(reasonOf)).toEqual([
      'stored at 2',
      'session_running',
      'stored at 3',
      'stored at 3',
    ]);
  });

  describe('on an unknown outcome', () => {
    it.each<Fate>(['lost', 'acknowledgement lost'])('sends the same bytes until it knows: %s', async (fate) => {
      store.fates.push(fate, fate, 'lost');
      store.onInsert = () => void (clock.nowMs += 700);
      const outcome = await submit(messageCommand('a'));
      expect(reasonOf(outcome)).toBe('stored at 2');
      expect(store.inserts.length).toBeGreaterThan(1);
      expect(new Set(store.inserts).size).toBe(1);
      expect(JSON.stringify((await log())[1])).toBe(store.inserts[0]);
    });

    it('refuses what the store will never take, with all that waits behind it, and goes on', async () => {
      store.onInsert = (document) => {
        if (document.commitIds.includes('holed')) throw new FailedPreconditionError('blob_lost', 'a blob is gone');
      };
      const outcomes = [messageCommand('holed'), messageCommand('with it')].map((command) => submit(command));
      const failed = { status: 'rejected', reason: expect.objectContaining({ reason: 'blob_lost' }) };
      expect(await Promise.allSettled(outcomes)).toEqual([failed, failed]);
      expect(reasonOf(await submit(messageCommand('next')))).toBe('stored at 2');
    });

    it('goes on asking where an earlier attempt at it may have been stored', async () => {
      const attempts = [new Error('no answer'), new FailedPreconditionError('blob_lost', 'a blob is gone')];
      store.onInsert = () => {
        const failure = attempts.shift();
        if (failure) throw failure;
      };
      expect(reasonOf(await submit(messageCommand('a')))).toBe('stored at 2');
      expect(store.inserts).toHaveLength(3);
    });

    it('waits longer from time to time, up to a second', async () => {
      store.fates.push(...Array<Fate>(10).fill('lost'));
      await submit(messageCommand('a'));
      expect(clock.slept).toEqual([10, 20, 40, 80, 160, 320, 640, 1_000, 1_000, 1_000]);
    });

    it('answers from the stored document, not from its own, where another commit took the number', async () => {
      store.fates.push('lost');
      store.onInsert = async () => {
        store.onInsert = () => undefined;
        await submit(messageCommand('theirs'), undefined, newLoop());
      };
      expect(reasonOf(await submit(messageCommand('mine')))).toBe('stored at 3');
      expect((await log()).flatMap(({ commitIds }) => commitIds)).toEqual(['create', 'theirs', 'mine']);
    });

    it('announces a document whose acknowledgement was lost', async () => {
      store.fates.push('acknowledgement lost');
      expect(await submit(messageCommand('a'))).toMatchObject({ ok: true, replayed: true });
      expect(announced.map(({ c }) => c)).toEqual([2]);
    });
  });

  describe('on a number that is taken', () => {
    it('takes the other head and decides again', async () => {
      await submit(messageCommand('theirs'), undefined, newLoop());
      expect(reasonOf(await submit(messageCommand('mine')))).toBe('stored at 3');
      expect((await log())[2]?.head.inboxEnd).toBe(1);
    });

    it('inserts again after 100 ms where nobody can see who took it', async () => {
      store.fates.push('named as taken');
      expect(reasonOf(await submit(messageCommand('a')))).toBe('stored at 2');
      expect(clock.nowMs).toBeGreaterThanOrEqual(100);
      expect(store.inserts).toHaveLength(2);
    });

    it('waits for a commit that is not visible yet', async () => {
      await submit(messageCommand('theirs'), undefined, newLoop());
      store.visible = 1;
      const outcome = submit(messageCommand('mine'));
      while (clock.nowMs < 1_000) await new Promise(setImmediate);
      store.visible = Infinity;
      expect(reasonOf(await outcome)).toBe('stored at 3');
    });

    it('finds its own commit under another number', async () => {
      // Another replica stores the command at 2 and something else at 3 while this one still believes in 1.
      const other = newLoop();
      await submit(messageCommand('mine'), undefined, other);
      await submit(messageCommand('theirs'), undefined, other);
      loop.observe(SESSION, tipOf((await log())[2] as CommitDocument));
      expect(await submit(messageCommand('mine'))).toMatchObject({ ok: true, c: 2, replayed: true });
      expect(await log()).toHaveLength(3);
    });
  });

  describe('before it refuses', () => {
    it('reads the head, and a linearizable read finds nothing behind it', async () => {
      expect(reasonOf(await submit(cancel))).toBe('no_active_run');
      expect(store.calls).toEqual(['read 1', 'read 2', 'read 2 linearizable', 'find cancel linearizable']);
    });

    it('reads on where plain reads are behind', async () => {
      await submit(messageCommand('starts a run'), undefined, newLoop());
      store.visible = 1;
      expect(reasonOf(await submit(interrupt))).toBe('stored at 3');
    });

    it('tells the head that refused it', async () => {
      await startRun();
      expect(await submit(acceptCommand('second'))).toMatchObject({ ok: false, head: { c: 3, run: { id: RUN_ID } } });
    });

    it('repeats reads until the store answers', async () => {
      const read = jest.spyOn(store, 'lowerBound').mockRejectedValueOnce(new Error('away'));
      expect(reasonOf(await submit(cancel))).toBe('no_active_run');
      expect(read).toHaveBeenCalledTimes(2);
    });
  });

  describe('when it is busy', () => {
    it('refuses the command after 256 that wait, but not those of a runner', async () => {
      const release = holdInserts();
      const outcomes = Array.from({ length: 257 }, (_, i) => submit(messageCommand(`message ${i}`)));
      await expect(submit(messageCommand('one too many'))).rejects.toMatchObject({ reason: 'session_busy' });
      const runner = submit(step(0));
      release();
      expect((await Promise.all(outcomes)).every(({ ok }) => ok)).toBe(true);
      expect(reasonOf(await runner)).toBe('fenced');
    });

    it('gives up a command whose deadline passes before anything of it was sent', async () => {
      const release = holdInserts();
      const first = submit(messageCommand('first'));
      const late = submit(messageCommand('late'), 50);
      const patient = submit(messageCommand('patient'), 500);
      clock.nowMs += 100;
      release();
      await expect(late).rejects.toMatchObject({ reason: 'deadline', code: 'UNAVAILABLE' });
      expect((await Promise.all([first, patient])).map(reasonOf)).toEqual(['stored at 2', 'stored at 3']);
      expect((await log()).flatMap(({ commitIds }) => commitIds)).not.toContain('late');
    });

    it('never gives up a command that may have been sent', async () => {
      store.fates.push('lost', 'lost');
      store.onInsert = () => void (clock.nowMs += 700);
      expect(reasonOf(await submit(messageCommand('a'), 50))).toBe('stored at 2');
    });

    it("takes no runner's command out of the middle by a deadline", async () => {
      await startRun();
      const release = holdInserts();
      const first = submit(messageCommand('first'));
      const outcomes = [submit(step(0), 50), submit(step(1), 500)];
      clock.nowMs += 100;
      release();
      await first;
      expect((await Promise.all(outcomes)).map(reasonOf)).toEqual(['stored at 5', 'stored at 5']);
    });

    it('closes a batch before the command that would pass 512 KB', async () => {
      await startRun();
      const release = holdInserts();
      const records = [{ kind: 'large', text: 'ž'.repeat(100 * 1024) }];
      const outcomes = [0, 1, 2, 3].map((n) => submit(step(n, { records })));
      release();
      // The first is alone in flight; then two of 200 KB fit, and one is left.
      expect((await Promise.all(outcomes)).map(reasonOf)).toEqual([
        'stored at 4',
        'stored at 5',
        'stored at 5',
        'stored at 6',
      ]);
    });

    it('refuses a command above 512 KB, in bytes', async () => {
      const text = 'ž'.repeat(COMMIT_MAX_BYTES / 2);
      await expect(submit(messageCommand('large', { text }))).rejects.toMatchObject({ reason: 'too_large' });
    });

    it('counts a private text that an event holds once', async () => {
      await startRun();
      const text = 'x'.repeat(COMMIT_MAX_BYTES - 20_000);
      const events = [{ type: 'agent_message', payload: { agent_id: 'root', depth: 0, text } }];
      const outcome = await submit(step(0, { events, records: [{ kind: 'answer', text }] }));
      expect(reasonOf(outcome)).toBe('stored at 4');
      expect(JSON.stringify((await log())[3]).length).toBeLessThan(COMMIT_MAX_BYTES + 10_000);
    });
  });

  describe('when it is closed', () => {
    it('refuses new commands and stores those it has', async () => {
      const release = holdInserts();
      const outcome = submit(messageCommand('a'));
      loop.close();
      await expect(submit(messageCommand('b'))).rejects.toThrow(UnavailableError);
      release();
      expect(reasonOf(await outcome)).toBe('stored at 2');
    });

    it('gives up what it does not know, and all that waits behind it', async () => {
      await startRun();
      const release = holdInserts();
      store.fates.push('lost');
      const outcomes = Promise.allSettled([submit(step(0)), submit(step(1)), submit(step(2))]);
      loop.close();
      release();
      for (const outcome of await outcomes)
        expect(outcome).toMatchObject({ status: 'rejected', reason: { reason: 'closing' } });
      expect(await log()).toHaveLength(3);
    });
  });

  it('fails a batch that can not be decided and goes on with the next', async () => {
    const broken = { ...messageCommand('broken'), run: undefined } as unknown as Command;
    const failing = submit(broken);
    await expect(failing).rejects.toThrow(TypeError);
    expect(reasonOf(await submit(messageCommand('a')))).toBe('stored at 2');
  });

  it('keeps sessions apart', async () => {
    const release = holdInserts();
    const other = loop.submit('other', createCommand());
    const mine = submit(messageCommand('a'));
    release();
    expect([reasonOf(await other), reasonOf(await mine)]).toEqual(['stored at 1', 'stored at 2']);
  });

  it('shows the end it saw last, takes note of a later one, and confirms the true one', async () => {
    expect(loop.peek('unknown')).toBeUndefined();
    expect(loop.peek(SESSION)?.head.c).toBe(1);
    const { document } = fold(loop.peek(SESSION) as never, [hashed(messageCommand('theirs'))], 1);
    await store.insert(document as CommitDocument);
    expect((await loop.confirmedTip(SESSION)).head.c).toBe(2);
    expect(loop.peek(SESSION)?.head.c).toBe(2);
    loop.observe(SESSION, tipOf((await log())[0] as CommitDocument));
    expect(loop.peek(SESSION)?.head.c).toBe(2);
  });

  it('remembers an end that it was shown, but no session that is not there', async () => {
    const reader = newLoop();
    reader.observe(SESSION, tipOf((await log())[0] as CommitDocument));
    store.calls.length = 0;
    expect(reasonOf(await submit(messageCommand('a'), undefined, reader))).toBe('stored at 2');
    expect(store.calls).toEqual([]);
    await reader.confirmedTip('unknown');
    expect(reader.peek('unknown')).toBeUndefined();
  });

  it('reads the end of a log that went on without it, not each commit up to it', async () => {
    const stale = newLoop();
    expect(reasonOf(await submit(messageCommand('mine'), undefined, stale))).toBe('stored at 2');
    for (let i = 0; i < 1_000; i++) await submit(messageCommand(`theirs ${i}`));
    store.calls.length = 0;
    expect(reasonOf(await submit(messageCommand('late'), undefined, stale))).toBe('stored at 1003');
    expect(store.calls.length).toBeLessThan(40);
  });
});
