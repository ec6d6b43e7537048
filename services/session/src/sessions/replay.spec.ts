import type { Principal, sessionsPb } from '@margay/contracts';
import { MemoryBlobStore, MemoryCommitStore, type Command, type CommitDocument } from '@margay/log';
import { createLogger } from '@margay/platform';
import { acceptCommand, createCommand, messageCommand } from '@margay/testing';
import { SessionLog } from '../commits/session-log';
import { replay } from './replay';

const SESSION = 'session';
const RUN = `${SESSION}:r1`;
const logger = createLogger({ service: 'spec', level: 'off' });
const ignore = (): void => undefined;
const observer = { inserted: ignore, conflicted: ignore, unknownOutcome: ignore, fenced: ignore };
const owner: Principal = { v: 1, iss: 'gateway', tenantId: 'tenant', principal: 'user', role: 'member', scopes: null };

/** Loses sight of commits from some number on, and counts what is read one by one. */
class WatchedStore extends MemoryCommitStore {
  blindFrom = Infinity;
  reads = 0;
  documents = 0;

  override async *range(sessionId: string, from: number, to = Infinity) {
    for await (const document of super.range(sessionId, from, to)) {
      if (document.c >= this.blindFrom) return;
      this.documents += 1;
      yield document;
    }
  }

  override readNumber(sessionId: string, c: number) {
    this.reads += 1;
    return super.readNumber(sessionId, c);
  }
}

let store: WatchedStore;
let log: SessionLog;

beforeEach(async () => {
  store = new WatchedStore();
  log = new SessionLog(store, new MemoryBlobStore(), observer, logger);
  await submit(createCommand());
  await submit(acceptCommand('question'));
  await submit({ kind: 'claim', commitId: 'claim', runId: RUN, epoch: 1, owner: 'runner' });
});

async function submit(command: Command): Promise<void> {
  const outcome = await log.submit(SESSION, command);
  if (!outcome.ok) throw new Error(outcome.rejection.message);
}

type Request = sessionsPb.ReadCommitsRequest;
const request = (part: Partial<Request> = {}): Request => ({
  ...{ sessionId: SESSION, from: undefined, beforeTs: 0, last: 0, first: 0 },
  ...part,
});

async function read(from: Request['from'] = undefined, principal = owner, part: Partial<Request> = {}) {
  const messages: sessionsPb.ReadCommitsResponse[] = [];
  for await (const message of replay(log, principal, request({ from, ...part }))) messages.push(message);
  const frames = messages.flatMap(({ commits }) => commits.flatMap((commit) => commit.frames));
  return { messages, frames, seqs: frames.map(({ seq }) => seq), state: messages.at(-1)?.state };
}

async function all(): Promise<CommitDocument[]> {
  const documents: CommitDocument[] = [];
  for await (const document of store.range(SESSION, 1)) documents.push(document);
  return documents;
}

describe('a replay', () => {
  it('gives every stored frame as it is stored, in order, and the state of its end once', async () => {
    const { frames, state, messages } = await read();
    const stored = (await all()).flatMap(({ events }) => events.map(({ frame }) => frame));
    expect(frames.map(({ json }) => json)).toEqual(stored);
    expect(state).toMatchObject({ c: 3, seq: 5, running: true });
    expect(messages.filter((message) => message.state)).toHaveLength(1);
  });

  it('begins after a commit', async () => {
    expect((await read({ $case: 'afterCommit', value: 1 })).seqs).toEqual([3, 4, 5]);
    expect((await read({ $case: 'afterCommit', value: 3 })).seqs).toEqual([]);
    expect((await read({ $case: 'afterCommit', value: 99 })).state).toMatchObject({ c: 3 });
  });

  it('begins at a time, the event of exactly that time included', async () => {
    const { frames } = await read();
    for (const [index, { ts }] of frames.entries()) {
      expect((await read({ $case: 'atOrAfterTs', value: ts })).seqs).toEqual([1, 2, 3, 4, 5].slice(index));
      expect((await read({ $case: 'atOrAfterTs', value: ts + 1 })).seqs).toEqual([1, 2, 3, 4, 5].slice(index + 1));
    }
    expect((await read({ $case: 'atOrAfterTs', value: 0 })).seqs).toEqual([1, 2, 3, 4, 5]);
  });

  it('begins after any seq, also among commits without events, in few reads', async () => {
    for (let i = 0; i < 100; i++) {
      if (i % 3 === 0) await submit(messageCommand(`m${i}`));
      else await submit({ kind: 'step', commitId: `s${i}`, runId: RUN, epoch: 2, events: [], records: [] });
    }
    const end = (await read()).seqs.at(-1) ?? 0;
    for (let seq = 0; seq <= end + 1; seq++) {
      store.reads = 0;
      const { seqs } = await read({ $case: 'afterSeq', value: seq });
      expect(seqs).toEqual(Array.from({ length: Math.max(0, end - seq) }, (_, i) => seq + 1 + i));
      expect(store.reads).toBeLessThan(20);
    }
  });

  it('comes in pages bounded by number and by size, all of one head', async () => {
    for (let i = 0; i < 250; i++) await submit(messageCommand(`${i} ${i < 20 ? 'x'.repeat(90_000) : ''}`));
    const pages: sessionsPb.ReadCommitsResponse[] = [];
    for await (const page of replay(log, owner, request())) {
      pages.push(page);
      // What comes in while it reads belongs to the next one.
      if (pages.length === 1) await submit(messageCommand('meanwhile'));
    }
    const sizes = pages.map(({ commits }) => commits.reduce((sum, { frames }) => sum + frames.reduce((n, { json }) => n + json.length, 0), 0)); // prettier-ignore
    expect(Math.max(...sizes)).toBeLessThan(700_000);
    expect(Math.max(...pages.map(({ commits }) => commits.length))).toBeLessThanOrEqual(100);
    const text = pages.flatMap(({ commits }) => commits.flatMap(({ frames }) => frames.map(({ json }) => json))).join();
    expect(text).toContain('249 ');
    expect(text).not.toContain('meanwhile');
    expect(pages.at(-1)?.state).toMatchObject({ c: 253 });
  });

  it('ends before a time, the event of exactly that time left out', async () => {
    const { frames } = await read();
    for (const [index, { ts }] of frames.entries()) {
      expect((await read(undefined, owner, { beforeTs: ts })).seqs).toEqual([1, 2, 3, 4, 5].slice(0, index));
      const { seqs, state } = await read(undefined, owner, { beforeTs: ts + 1 });
      expect(seqs).toEqual([1, 2, 3, 4, 5].slice(0, index + 1));
      expect(state).toMatchObject({ c: 3 });
    }
  });

  it('gives the first or the last events of any range, the last ones without reading what lies before', async () => {
    for (let i = 0; i < 300; i++) {
      if (i % 3 === 0) await submit(messageCommand(`m${i}`));
      else await submit({ kind: 'step', commitId: `s${i}`, runId: RUN, epoch: 2, events: [], records: [] });
    }
    const { frames, seqs: whole } = await read();
    for (const count of [1, 2, 7, 40, 99, whole.length, 1_000]) {
      for (const at of [0, 3, 50, whole.length - 1]) {
        const beforeTs = frames[at]?.ts ?? 0;
        const backwards = await read(undefined, owner, { beforeTs, last: count });
        expect(backwards.seqs).toEqual(whole.slice(0, at).slice(-count));
        const from = { $case: 'atOrAfterTs' as const, value: beforeTs + 1 };
        expect((await read(from, owner, { first: count })).seqs).toEqual(whole.slice(at + 1).slice(0, count));
        expect((await read(from, owner, { last: count })).seqs).toEqual(whole.slice(at + 1).slice(-count));
      }
      store.documents = 0;
      expect((await read(undefined, owner, { last: count })).seqs).toEqual(whole.slice(-count));
      expect(store.documents).toBeLessThan(3 * count + 128);
    }
  });

  it('skips what the head cuts out', async () => {
    await submit(messageCommand('more'));
    const last = (await all()).at(-1) as CommitDocument;
    const next = {
      ...last,
      _id: `${SESSION}.0000000005`,
      c: 5,
      commitIds: ['cut'],
      events: [],
      head: {
        ...last.head,
        c: 5,
        cuts: [
          [2, 3],
          [5, 5],
        ] as [number, number][],
      },
    };
    await store.insert(next);
    expect((await read()).seqs).toEqual([1, 4, 6]);
    expect((await read({ $case: 'afterSeq', value: 4 })).seqs).toEqual([6]);
    expect((await read(undefined, owner, { last: 2 })).seqs).toEqual([4, 6]);
    expect((await read(undefined, owner, { first: 2 })).seqs).toEqual([1, 4]);
  });

  it('goes on behind a long turn that was run again, whatever lies in it is asked from', async () => {
    for (let n = 0; n < 300; n++) await submit(messageCommand(`word ${n}`));
    await submit({ kind: 'cancel', commitId: 'cancel' });
    const before = (await read()).frames;
    const user = before.find(({ json }) => json.includes('"type":"user"'));
    const from = { seq: user?.seq ?? 0, ts: user?.ts ?? 0, runId: RUN };
    await submit({ kind: 'recover', commitId: 'retry', action: 'retry', from, run: acceptCommand('again').run });
    const typesOf = (frames: { json: string }[]) =>
      frames.map(({ json }) => (JSON.parse(json) as { type: string }).type);
    const opening = ['session', 'context', 'context', 'run_accepted'];
    const again = ['recovery', 'context', 'run_accepted', 'user'];
    expect(typesOf((await read()).frames)).toEqual([...opening, ...again]);
    const { seq = 0, ts = 0 } = before[150] ?? {};
    for (const cursor of [
      { $case: 'atOrAfterTs', value: ts },
      { $case: 'afterSeq', value: seq },
    ] as const) {
      const { frames, state } = await read(cursor);
      expect(typesOf(frames)).toEqual(again);
      expect(state?.running).toBe(true);
    }
    const page = async (part: Partial<Request>) => typesOf((await read(undefined, owner, part)).frames);
    expect(await page({ last: 6 })).toEqual([...opening.slice(2), ...again]);
    expect(await page({ last: 2, beforeTs: ts })).toEqual(opening.slice(2));
    expect(await page({ first: 6 })).toEqual([...opening, ...again.slice(0, 2)]);
  });

  it('never gives an end without everything before it', async () => {
    store.blindFrom = 2;
    await expect(read()).rejects.toMatchObject({ code: 'UNAVAILABLE', reason: 'log_gap' });
  });

  it('reads on where a range stopped short', async () => {
    const whole = await read();
    store.blindFrom = 2;
    const reading = read();
    setImmediate(() => (store.blindFrom = Infinity));
    expect(await reading).toEqual(whole);
  });

  it('is refused to others as if nothing was there', async () => {
    for (const other of [{ tenantId: 'other', role: 'owner' as const }, { principal: 'user:bob' }])
      await expect(read(undefined, { ...owner, ...other })).rejects.toMatchObject({ reason: 'session_not_found' });
  });
});
