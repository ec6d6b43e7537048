import type { runnersPb } from '@margay/contracts';
import {
  MemoryBlobStore,
  MemoryCommitStore,
  offloadCommand,
  type Command,
  type CommitDocument,
  type CommitOutcome,
} from '@margay/log';
import { createLogger } from '@margay/platform';
import { acceptCommand, createCommand, messageCommand } from '@margay/testing';
import { SessionLog } from '../commits/session-log';
import { RunJournal, type JournalStreamPort } from './run-journal';

const SESSION = 'session';
const RUN = `${SESSION}:r1`;
const logger = createLogger({ service: 'spec', level: 'off' });
const observer = { inserted: ignore, conflicted: ignore, unknownOutcome: ignore, fenced: ignore };
const bus = { subscribe: () => ignore, publish: ignore, flush: async () => undefined };
const completion = { done: true, done_reason: 'completed' };

type Message = NonNullable<runnersPb.JournalResponse['message']>;

function ignore(): void {
  // nobody looks
}

/** A stream whose reader can be slow. */
class FakeStream implements JournalStreamPort {
  readonly sent: Message[] = [];
  failure: unknown;
  isEnded = false;
  isSlow = false;
  private drained: (() => void)[] = [];

  send(message: Message): Promise<void> {
    this.sent.push(message);
    return this.isSlow ? new Promise((resolve) => this.drained.push(resolve)) : Promise.resolve();
  }

  breakOff(error: unknown): void {
    this.failure = error;
  }

  end(): void {
    this.isEnded = true;
  }

  drain(): void {
    this.drained.splice(0).forEach((resolve) => resolve());
  }

  of<C extends Message['$case']>(kind: C): (Message & { $case: C })['value'][] {
    return this.sent.flatMap((message) => (message.$case === kind ? [message.value as never] : []));
  }
}

/** Its reads fail as often as a spec says. */
class FailingStore extends MemoryCommitStore {
  failures = 0;
  /** Plain reads see commits up to this number. */
  visible = Infinity;
  /** Holds inserts back until it resolves. */
  gate: Promise<void> = Promise.resolve();

  override async insert(document: CommitDocument): Promise<'inserted' | 'exists'> {
    await this.gate;
    return super.insert(document);
  }

  override async *range(sessionId: string, from: number, to = Infinity) {
    if (this.failures-- > 0) throw new Error('the store is away');
    yield* super.range(sessionId, from, Math.min(to, this.visible));
  }
}

let store: FailingStore;
let blobs: MemoryBlobStore;
let log: SessionLog;
let stream: FakeStream;
let journals: RunJournal[];

beforeEach(async () => {
  store = new FailingStore();
  blobs = new MemoryBlobStore();
  log = new SessionLog(store, blobs, observer, logger);
  stream = new FakeStream();
  journals = [];
  await submit(createCommand());
  await submit(acceptCommand('question'));
  await submit({ kind: 'claim', commitId: 'claim', runId: RUN, epoch: 1, owner: 'runner' });
});
afterEach(() => journals.forEach((journal) => journal.close()));

function submit(command: Command): Promise<CommitOutcome> {
  return log.submit(SESSION, command);
}

function journal(epoch = 2): RunJournal {
  const made = new RunJournal({ log, bus, logger }, { sessionId: SESSION, runId: RUN, epoch }, stream);
  journals.push(made);
  return made;
}

async function opened(): Promise<RunJournal> {
  const made = journal();
  await made.open(0, 'tenant');
  return made;
}

const send = (to: RunJournal, commitId: string, command: object): void =>
  to.commit({ commitId, commandJson: JSON.stringify(command) });

async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise(setImmediate);
}

const settled = async (): Promise<void> => {
  for (let i = 0; i < 50; i++) await new Promise(setImmediate);
};

function records(): unknown[] {
  return stream.of('opened').flatMap((message) => message.records.map(({ json }) => JSON.parse(json) as unknown));
}

async function steps(count: number, text: string): Promise<void> {
  for (let i = 0; i < count; i++)
    await submit({
      kind: 'step',
      commitId: `step ${i}`,
      runId: RUN,
      epoch: 2,
      events: [],
      records: [{ kind: 'tool', text }],
    });
}

describe('a journal that opens', () => {
  it('sends what the runner lacks, and the head', async () => {
    await steps(3, 'result');
    await journal().open(3, 'tenant');
    expect(records()).toEqual([1, 2, 3].map(() => ({ kind: 'tool', text: 'result' })));
    expect(JSON.parse(stream.of('opened').at(-1)?.headJson ?? '')).toMatchObject({ c: 6, epoch: 2 });
  });

  it('reads a long log no faster than the runner takes it', async () => {
    await steps(1_000, 'x'.repeat(100));
    stream.isSlow = true;
    const open = journal().open(0, 'tenant');
    await until(() => stream.sent.length === 1);
    await settled();
    expect(stream.sent).toHaveLength(1);
    stream.drain();
    await until(() => stream.sent.length === 2);
    await settled();
    expect(stream.sent).toHaveLength(2);
    stream.isSlow = false;
    stream.drain();
    await open;
    expect(records()).toHaveLength(1_002);
  });

  it('waits for a claim that reads do not show yet, even where another run is shown last', async () => {
    store.visible = 1;
    const open = journal().open(0, 'tenant');
    await settled();
    expect(stream.sent).toEqual([]);
    store.visible = Infinity;
    await open;
    expect(stream.of('opened').at(-1)?.last).toBe(true);
  });

  it('stops waiting for a claim when its runner is gone', async () => {
    store.visible = 1;
    const made = journal();
    const open = made.open(0, 'tenant');
    await settled();
    made.close();
    await open;
    expect(stream.sent).toEqual([]);
  });

  it('is fenced by a higher epoch', async () => {
    await submit({ kind: 'takeover', commitId: 't', runId: RUN, epoch: 2, cause: 'crash' });
    await opened();
    expect(stream.sent).toMatchObject([{ $case: 'fenced' }]);
  });

  it('tells what was committed while it was reading', async () => {
    await steps(200, 'x');
    stream.isSlow = true;
    const open = journal().open(0, 'tenant');
    await until(() => stream.sent.length === 1);
    await submit(messageCommand('meanwhile'));
    stream.isSlow = false;
    stream.drain();
    await open;
    await settled();
    const inbox = [...stream.of('inbox').flatMap(({ items }) => items.map(({ text }) => text))];
    const read = records().flatMap((record) => ((record as { kind: string }).kind === 'inbox' ? ['meanwhile'] : []));
    expect([...inbox, ...read]).toEqual(['meanwhile']);
  });
});

describe('an open journal', () => {
  it('stores commands in their order and answers each', async () => {
    const made = await opened();
    for (const id of ['a', 'b', 'c']) send(made, id, { kind: 'step', records: [{ kind: 'tool', id }] });
    await until(() => stream.of('committed').length === 3);
    expect(stream.of('committed').map(({ commitId }) => commitId)).toEqual(['a', 'b', 'c']);
  });

  it('goes on following after the store was away', async () => {
    await opened();
    await settled();
    const away = new SessionLog(store, blobs, observer, logger);
    await away.submit(SESSION, messageCommand('steer'));
    store.failures = 1;
    journals[0]?.follow(4);
    await settled();
    expect(stream.of('inbox')).toEqual([]);
    journals[0]?.follow(4);
    await until(() => stream.of('inbox').length === 1);
  });

  it.each<[string, object]>([
    ['a wait', { kind: 'release', cause: 'waiting', waiting: { for: [`${SESSION}.2.1.0`], inboxEnd: 0 } }],
    ['an end', { kind: 'finish', text: '', completion }],
  ])('is shown at once what %s was refused for', async (_, command) => {
    const made = await opened();
    const payload = { call_id: `${SESSION}.2.1.0`, call_token: 't', questions: [], timeout_seconds: null, notes_placeholder: null }; // prettier-ignore
    const questions = [{ callId: payload.call_id, timeoutSeconds: null }];
    send(made, 'ask', { kind: 'step', events: [{ type: 'user_question', payload }], questions });
    await until(() => stream.of('committed').length === 1);
    // Another replica's commit of which this one does not hear.
    await new SessionLog(store, blobs, observer, logger).submit(SESSION, messageCommand('steer'));
    send(made, 'refused', command);
    await until(() => stream.of('rejected').length === 1 && stream.of('inbox').length === 1);
    expect(stream.of('inbox')[0]?.items.map(({ kind }) => kind)).toEqual(['answer', 'steer']);
  });

  it('is told of a cancel that shares its commit with a step of the runner', async () => {
    const made = await opened();
    // While the first command is under way, the next two join one document.
    let release = ignore;
    store.gate = new Promise((resolve) => (release = resolve));
    const outcomes = [submit(messageCommand('first'))];
    send(made, 'mine', { kind: 'step' });
    await settled();
    outcomes.push(submit({ kind: 'cancel', commitId: 'cancel' }));
    release();
    await Promise.all(outcomes);
    await until(() => stream.of('cancel').length === 1);
    expect((await store.findByCommitId(SESSION, 'cancel'))?.commitIds).toEqual(['mine', 'cancel']);
  });

  it('says nothing more to an owner that has ended its run', async () => {
    const made = await opened();
    send(made, 'end', { kind: 'finish', text: 'done', completion });
    await until(() => stream.of('committed').length === 1);
    await settled();
    expect(stream.sent.map(({ $case }) => $case)).toEqual(['opened', 'committed']);
  });

  it('still tells of a cancel after a refused end', async () => {
    const made = await opened();
    await submit(messageCommand('steer'));
    send(made, 'end', { kind: 'finish', text: 'done', completion });
    await until(() => stream.of('rejected').length === 1);
    await submit({ kind: 'cancel', commitId: 'cancel' });
    await until(() => stream.of('cancel').length === 1);
  });

  it('answers what is no command, and takes only the end of the run after it', async () => {
    const made = await opened();
    made.commit({ commitId: 'bad', commandJson: '{"kind":' });
    send(made, 'step', { kind: 'step' });
    send(made, 'end', { kind: 'finish', text: 'failed', completion });
    await until(() => stream.of('committed').length === 1);
    expect(stream.of('rejected').map(({ commitId, reason }) => [commitId, reason])).toEqual([
      ['bad', 'invalid_command'],
      ['step', 'invalid_command'],
    ]);
    expect(stream.of('committed')).toMatchObject([{ commitId: 'end' }]);
  });

  it('stores nothing behind a command whose blobs can not be stored, and breaks off', async () => {
    const made = await opened();
    jest.spyOn(blobs, 'put').mockRejectedValueOnce(new Error('no blobs'));
    send(made, 'big', { kind: 'step', records: [{ kind: 'tool', text: 'x'.repeat(50_000) }] });
    send(made, 'next', { kind: 'step' });
    await until(() => stream.failure !== undefined);
    await settled();
    expect(stream.of('committed')).toEqual([]);
    expect(await store.findByCommitId(SESSION, 'next')).toBeUndefined();
  });

  it('gives a steer of 200,000 characters whole, and its event a preview', async () => {
    await opened();
    const text = `begin ${'語'.repeat(200_000)} end`;
    await submit(await offloadCommand('tenant', { ...messageCommand(text), commitId: 'long' }, blobs));
    await until(() => stream.of('inbox').length === 1);
    expect(stream.of('inbox')[0]?.items[0]?.text).toBe(text);
    const frame = (await store.readNumber(SESSION, 4))?.events[0]?.frame ?? '{}';
    const { payload } = JSON.parse(frame) as { payload: Record<string, unknown> };
    expect(String(payload['text'])).toHaveLength(60_000);
    expect(payload).toMatchObject({ text_truncated: true, text_blob: { bytes: Buffer.byteLength(text) } });
  });

  it('hands over once every command that came is answered', async () => {
    const made = await opened();
    send(made, 'a', { kind: 'step' });
    await Promise.resolve();
    const handed = made.handOver();
    send(made, 'late', { kind: 'step' });
    await handed;
    expect(stream.isEnded).toBe(true);
    expect(stream.of('committed')).toMatchObject([{ commitId: 'a' }]);
    expect(await store.findByCommitId(SESSION, 'late')).toBeUndefined();
  });

  it('leaves no listener behind', async () => {
    const made = await opened();
    made.close();
    await submit(messageCommand('later'));
    await settled();
    expect(stream.sent).toHaveLength(1);
    expect((log as unknown as { listenersOf: Map<string, unknown> }).listenersOf.size).toBe(0);
  });
});
