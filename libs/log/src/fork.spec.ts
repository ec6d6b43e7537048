import { acceptCommand, createCommand, hashed, messageCommand } from '@margay/testing';
import { fold } from './build';
import type { Command, Completion } from './command';
import { tipOf, type CommitDocument, type Tip } from './document';
import { FORK_CUT_TEXT, ForkWriter, isHalfMade, type ForkPlan } from './fork';
import { emptyHead } from './head';
import { unpackRecord } from './references';
import { sessionState } from './state';
import { verifyLog } from './verify';

const SOURCE = 'a'.repeat(32);
const FORK = 'b'.repeat(32);
const START_MICROS = 1_700_000_000_000_000;
const NOW = START_MICROS + 3_600_000_000;
const LONG = 'a result that is long enough to be stored once only, in the event, and to be referred to by the record';

/** A session of two runs; the second was cut off from its runner by a person. */
class Source {
  readonly documents: CommitDocument[] = [];
  private tip: Tip = { head: emptyHead(SOURCE), hash: '' };

  commit(...commands: Command[]): CommitDocument {
    const { document, rejected } = fold(
      this.tip,
      commands.map(hashed),
      START_MICROS + this.documents.length * 1_000_000,
    );
    if (!document) throw new Error(`refused: ${JSON.stringify(rejected)}`);
    this.documents.push(document);
    this.tip = tipOf(document);
    return document;
  }

  get head() {
    return this.tip.head;
  }

  run(no: number, text: string): void {
    const run = this.begin(no, text);
    this.commit({
      kind: 'finish',
      commitId: `finish ${no}`,
      ...run,
      events: [],
      records: [],
      text: `answer ${no}`,
      completion: DONE,
    });
  }

  /** Accepted, claimed, one tool called. */
  begin(no: number, text: string): { runId: string; epoch: number } {
    this.commit(acceptCommand(text, { context: { model: `model ${no}` } }));
    const runId = `${SOURCE}:r${no}`;
    const { epoch } = this.head;
    this.commit({ kind: 'claim', commitId: `claim ${no}`, runId, epoch, owner: 'runner' });
    const run = { runId, epoch: epoch + 1 };
    const call = {
      tool_call_id: `call ${no}`,
      tool_id: 't',
      operation: 'o',
      tool_input: {},
      agent_id: 'a',
      model: 'm',
    };
    const result = { ...call, result: LONG, success: true, summary: '' };
    this.commit({
      kind: 'step',
      commitId: `a ${no}`,
      ...run,
      events: [{ type: 'tool_call', payload: call }],
      records: [{ kind: 'assistant', toolCalls: [{ callId: `call ${no}` }] }],
    });
    this.commit({
      kind: 'step',
      commitId: `b ${no}`,
      ...run,
      events: [{ type: 'tool_result', payload: result }],
      records: [{ kind: 'tool', callId: `call ${no}`, text: LONG }],
    });
    return run;
  }

  get frames(): Frame[] {
    return framesOf(this.documents);
  }
}

const DONE: Completion = { done: true, done_reason: 'completed' };

interface Frame {
  ts: string;
  type: string;
  payload: Record<string, unknown>;
  seq: number;
  run_id?: string;
}

function framesOf(documents: CommitDocument[]): Frame[] {
  return documents.flatMap(({ events }) => events.map(({ frame }) => JSON.parse(frame) as Frame));
}

function recordsOf(documents: CommitDocument[]): unknown[] {
  return documents.flatMap(({ events, records }) =>
    records.map((record) =>
      unpackRecord(
        record,
        events.map(({ frame }) => frame),
      ),
    ),
  );
}

function planOf(source: Source, fields: Partial<ForkPlan> = {}, point: Partial<ForkPlan['source']> = {}): ForkPlan {
  const { c, ts, cuts } = source.head;
  const plan = { sessionId: FORK, tenantId: 'tenant', owner: 'bob', tag: null, title: 'the title', model: null };
  return { ...plan, forkedAtTs: null, source: { sessionId: SOURCE, c, ts, cuts, ...point }, ...fields };
}

function forkOf(source: Source, plan: ForkPlan, nowMicros = NOW): CommitDocument[] {
  const writer = new ForkWriter(plan);
  const documents = source.documents.map((document) => writer.add(document));
  const closing = [writer.flush(), writer.close(nowMicros, { commitId: 'fork', bodyHash: 'hash' })];
  return [...documents, ...closing].filter((document) => document !== undefined);
}

/** A fork up to the event that this picks. */
function forkAt(source: Source, pick: (frame: Frame) => boolean): CommitDocument[] {
  const seq = source.frames.find(pick)?.seq ?? 0;
  const event = source.documents.flatMap(({ events }) => events).find((each) => each.seq === seq);
  const c = source.documents.findIndex(({ events }) => events.some((each) => each.seq === seq)) + 1;
  const plan = planOf(source, { forkedAtTs: event?.ts ?? 0 }, { ts: event?.ts ?? 0, c });
  return forkOf({ documents: source.documents.slice(0, c) } as Source, plan);
}

function session(): Source {
  const source = new Source();
  source.commit(createCommand({ context: { model: 'model 0', repo: 'x' }, binding: { project: 'p', cwd: null } }));
  source.run(1, 'first');
  source.run(2, 'second');
  return source;
}

const withoutNumber = ({ seq: _seq, ...frame }: Frame): Omit<Frame, 'seq'> => frame;

describe('a fork', () => {
  it('has all events of its source but for their numbers, then its own', () => {
    const source = session();
    const frames = framesOf(forkOf(source, planOf(source)));
    expect(frames.slice(0, -2)).toEqual(source.frames);
    expect(frames.slice(-2)).toMatchObject([
      { type: 'session', payload: { event: 'created' } },
      { type: 'context', payload: { forked_from: SOURCE } },
    ]);
  });

  it('has a log of its own in which nothing is wrong', () => {
    const source = session();
    const documents = forkOf(source, planOf(source));
    expect(verifyLog(FORK, documents)).toBeUndefined();
    expect(documents.map(({ c }) => c)).toEqual([1, 2]);
    expect(documents.map(({ effects }) => effects)).toEqual([[], [{ kind: 'session' }]]);
  });

  it('remembers the conversation: private records are those of the source, long texts stored once', () => {
    const source = session();
    const [copy] = forkOf(source, planOf(source)) as [CommitDocument];
    expect(recordsOf([copy])).toEqual(recordsOf(source.documents));
    expect(copy.records.filter((record) => record.includes('a result that is long'))).toEqual([]);
  });

  it('is a session of who forked it, with title, binding, context and last run of the source', () => {
    const source = session();
    const { head } = forkOf(source, planOf(source, { tag: 'tag', model: 'other' })).at(-1) as CommitDocument;
    expect(head).toMatchObject({
      owner: 'bob',
      tag: 'tag',
      title: 'the title',
      binding: { project: 'p', cwd: null },
      context: { repo: 'x', model: 'other', forked_from: SOURCE },
      run: null,
      runNo: 2,
      lastRun: source.head.lastRun,
    });
    expect(sessionState(head).status).toBe('completed');
  });

  it.each(['tool_call', 'completion'])('knows when its last turn was opened, cut off at %s or whole', (type) => {
    const source = session();
    const documents = forkAt(source, (frame) => frame.type === type && frame.run_id === `${SOURCE}:r2`);
    const user = documents.flatMap(({ events }) => events).find(({ frame }) => frame.includes('"text":"second"'));
    // A run opens with `context`, `run_accepted`, `user`.
    expect(documents.at(-1)?.head.lastRun?.acceptedTs).toBe((user?.ts ?? 0) - 2);
  });

  it('takes the next run like any session', () => {
    const source = session();
    const end = tipOf(forkOf(source, planOf(source)).at(-1) as CommitDocument);
    const { document } = fold(end, [hashed(acceptCommand('go on'))], NOW + 1);
    expect(document?.head.run?.id).toBe(`${FORK}:r3`);
  });

  it('is half made, and shows no session, until its last commit', () => {
    const source = session();
    const documents = forkOf(source, planOf(source));
    expect(documents.map(({ head }) => isHalfMade(head))).toEqual([true, false]);
    expect(isHalfMade(emptyHead(FORK))).toBe(false);
  });

  it('comes out byte for byte again when it is begun anew, up to the commit that tells the time', () => {
    const source = session();
    const plan = planOf(source);
    expect(forkOf(source, plan, NOW + 5)[0]).toEqual(forkOf(source, plan)[0]);
  });

  it('ends with the completion where the answer was named as its last event', () => {
    const source = session();
    const documents = forkAt(source, ({ type }) => type === 'assistant');
    const types = framesOf(documents).map(({ type }) => type);
    expect(types.slice(-4)).toEqual(['assistant', 'completion', 'session', 'context']);
    expect(documents.at(-1)?.head).toMatchObject({ runNo: 1, context: { model: 'model 1' }, lastRun: { done: true } });
    expect(framesOf(documents).at(-1)?.payload).toHaveProperty('forked_at');
    expect(recordsOf(documents).at(-1)).toMatchObject({ kind: 'end', text: 'answer 1' });
    expect(verifyLog(FORK, documents)).toBeUndefined();
  });

  it('ends a run that it cuts in two, so that nothing is running in it', () => {
    const source = session();
    const documents = forkAt(source, ({ type }) => type === 'tool_call');
    const frames = framesOf(documents);
    expect(frames.slice(-5).map(({ type }) => type)).toEqual(['tool_call', 'assistant', 'completion', 'session', 'context']); // prettier-ignore
    expect(frames.at(-4)).toMatchObject({ payload: { text: FORK_CUT_TEXT }, run_id: `${SOURCE}:r1` });
    expect(documents.at(-1)?.head).toMatchObject({ run: null, lastRun: { doneReason: 'canceled' } });
    expect(recordsOf(documents).map((record) => (record as { kind: string }).kind)).toEqual(['run', 'user', 'assistant', 'end']); // prettier-ignore
    expect(verifyLog(FORK, documents)).toBeUndefined();
  });

  it('takes of a commit only the records of those events that are copied', () => {
    const source = new Source();
    source.commit(createCommand());
    source.commit(acceptCommand('question'), messageCommand('steer'));
    source.commit({ kind: 'cancel', commitId: 'cancel' }, acceptCommand('next'));
    const kinds = (documents: CommitDocument[]) =>
      recordsOf(documents).map((record) => (record as { kind: string }).kind);
    expect(kinds(forkAt(source, ({ type }) => type === 'user'))).toEqual(['run', 'user', 'end']);
    expect(kinds(forkAt(source, ({ type }) => type === 'user_steer'))).toEqual(['run', 'user', 'inbox', 'end']);
    expect(kinds(forkAt(source, ({ type }) => type === 'completion'))).toEqual(['run', 'user', 'inbox', 'end']);
    expect(kinds(forkAt(source, ({ type }) => type === 'context'))).toEqual([]);
  });

  it('leaves out what readers skip, and numbers the rest densely', () => {
    const source = session();
    const cuts: [number, number][] = [[5, 8]];
    const documents = forkOf(source, planOf(source, {}, { cuts }));
    const kept = source.frames.filter(({ seq }) => seq < 5 || seq > 8);
    expect(framesOf(documents).slice(0, -2).map(withoutNumber)).toEqual(kept.map(withoutNumber));
    expect(recordsOf(documents)).toEqual(recordsOf(source.documents));
    expect(verifyLog(FORK, documents)).toBeUndefined();
  });

  it('of a long session is written in few commits, none of them large', () => {
    const source = new Source();
    source.commit(createCommand());
    const run = source.begin(1, 'question');
    for (let i = 0; i < 900; i++) {
      const event = { type: 'run_note' as const, payload: { text: `${i} ${'x'.repeat(1_000)}` } };
      source.commit({ kind: 'step', commitId: `note ${i}`, ...run, events: [event], records: [] });
    }
    const documents = forkOf(source, planOf(source));
    expect(documents.length).toBeLessThan(8);
    for (const document of documents) expect(JSON.stringify(document).length).toBeLessThan(512 * 1024);
    expect(verifyLog(FORK, documents)).toBeUndefined();
  });
});
