import { RunStopped } from '@margay/engine';
import { createLogger } from '@margay/platform';
import { journalContract, type JournalHarness } from '@margay/testing';
import type { runnersPb } from '@margay/contracts';
import { ScriptedSession } from '../spec/scripted-session';
import { GrpcInbox } from './grpc-inbox';
import { GrpcJournal } from './grpc-journal';

const logger = createLogger({ level: 'off' });
const DONE = { text: 'Done.', completion: { done: true, done_reason: 'completed', task_result: 'Done.' } };
const note = (text: string) => ({ events: [{ type: 'run_note' as const, payload: { text } }], records: [] });

let session: ScriptedSession;
let journals: GrpcJournal[] = [];

beforeEach(async () => {
  session = await ScriptedSession.start();
});
afterEach(async () => {
  for (const journal of journals) journal.close();
  journals = [];
  await session.stop();
});

function own({ sessionId, runId, epoch, grant }: runnersPb.Assign, by = session) {
  const inbox = new GrpcInbox();
  const run = { sessionId, runId, epoch };
  const journal = new GrpcJournal({ client: by.client, run, grant: () => grant, inbox, logger });
  journals.push(journal);
  return { journal, inbox, sessionId };
}

async function until(holds: () => boolean): Promise<void> {
  const endMs = performance.now() + 60_000;
  while (!holds() && performance.now() < endMs) await new Promise((resolve) => setTimeout(resolve, 5));
  expect(holds()).toBe(true);
}

async function notes(sessionId: string): Promise<string[]> {
  return (await session.events(sessionId)).flatMap((event) => (event.type === 'run_note' ? [event.payload.text] : []));
}

async function harness(): Promise<JournalHarness> {
  const assign = await session.assign();
  const { journal, inbox, sessionId } = own(assign);
  return {
    journal,
    inbox,
    steer: (text) => session.steer(sessionId, text),
    interrupt: () => session.interrupt(sessionId),
    cancel: () => session.cancel(sessionId),
    takeOver: async () => own(await session.takeOver(assign)).journal,
    events: () => session.events(sessionId),
    deltas: () => session.deltas.map(({ text }) => text),
    close: async () => undefined,
  };
}

describe('a journal over a stream', () => {
  it.each(journalContract(harness))('$title', ({ check }) => check());
});

describe('when the stream is cut', () => {
  it.each(['lost', 'stored, answer lost'] as const)('stores a commit once whose fate was: %s', async (fate) => {
    const { journal, sessionId } = own(await session.assign());
    await journal.open();
    session.fates.push(fate);
    const numbers = await Promise.all(['a', 'b', 'c'].map((text) => journal.commit(note(text))));
    expect(numbers.toSorted((a, b) => a - b)).toEqual(numbers);
    expect(await notes(sessionId)).toEqual(['a', 'b', 'c']);
    expect(new Set(session.sent).size).toBe(3);
    expect(session.sent.length).toBeGreaterThan(3);
  });

  it('takes commits meanwhile and stores them once it is back', async () => {
    const { journal, sessionId } = own(await session.assign());
    await journal.open();
    session.cut();
    await journal.commit(note('meanwhile'));
    expect(await notes(sessionId)).toEqual(['meanwhile']);
    expect(session.opens).toEqual([0, expect.any(Number)]);
  });

  it('learns what came to the inbox meanwhile', async () => {
    const { journal, inbox, sessionId } = own(await session.assign());
    await journal.open();
    session.cut();
    await session.steer(sessionId, 'meanwhile');
    await until(() => inbox.since(0).length === 1);
    expect(inbox.since(0)).toEqual([{ n: 1, kind: 'steer', text: 'meanwhile' }]);
  });

  it('learns of a message that was lost with the stream and lies before a commit it knows', async () => {
    const { journal, inbox, sessionId } = own(await session.assign());
    await journal.open();
    session.announces = false;
    await session.steer(sessionId, 'lost');
    await journal.commit(note('later'));
    session.announces = true;
    session.cut();
    await until(() => inbox.since(0).length === 1);
    expect(session.opens.at(-1)).toBe(0);
    await journal.commit(note('last'));
    expect(await notes(sessionId)).toEqual(['later', 'last']);
  });

  it('reads a long log anew of which half was told', async () => {
    const first = await session.assign();
    const { journal } = own(first);
    await journal.open();
    for (const n of [1, 2, 3, 4, 5]) await journal.commit({ events: [], records: [{ kind: 'step', n }] });
    session.pageSize = 2;
    session.cutAfterPages = 2;
    const { records } = await own(await session.takeOver(first)).journal.open();
    expect(records.map(({ record }) => record.kind)).toEqual(['run', 'user', 'step', 'step', 'step', 'step', 'step']);
  });

  it('is fenced when it comes back to a run that has moved on', async () => {
    const assign = await session.assign();
    const { journal, inbox } = own(assign);
    await journal.open();
    session.fates.push('lost');
    const commit = expect(journal.commit(note('late'))).rejects.toEqual(new RunStopped('fenced'));
    await session.takeOver(assign);
    await commit;
    expect(inbox.stop.aborted).toBe(true);
  });

  it('learns when it comes back that the run was cancelled', async () => {
    const { journal, inbox, sessionId } = own(await session.assign());
    await journal.open();
    session.cut();
    await session.cancel(sessionId);
    await until(() => inbox.stop.aborted);
    expect(inbox.stop.reason).toEqual(new RunStopped('canceled'));
  });
});

it('writes on over connections that the server retires again and again', async () => {
  const brief = await ScriptedSession.start({ maxAgeMs: 150, maxAgeGraceMs: 50 });
  try {
    const { journal, sessionId } = own(await brief.assign(), brief);
    await journal.open();
    let count = 0;
    while (brief.opens.length <= 3) await journal.commit(note(`${(count += 1)}`));
    await journal.finish({ events: [], records: [] }, DONE);
    const events = await brief.events(sessionId);
    const texts = events.flatMap((event) => (event.type === 'run_note' ? [event.payload.text] : []));
    expect(texts).toEqual(Array.from({ length: count }, (_, index) => `${index + 1}`));
    expect(events.filter(({ type }) => type === 'completion')).toHaveLength(1);
  } finally {
    for (const journal of journals) journal.close();
    await brief.stop();
  }
});

describe('when a command is refused', () => {
  it('sends all of them again in their order where the replica only was closing', async () => {
    const { journal, sessionId } = own(await session.assign());
    await journal.open();
    session.fates.push('closing', 'closing', 'closing');
    await Promise.all(['a', 'b', 'c'].map((text) => journal.commit(note(text))));
    expect(await notes(sessionId)).toEqual(['a', 'b', 'c']);
  });

  it('passes the reason on where the command is faulty, and works on', async () => {
    const { journal, sessionId } = own(await session.assign());
    await journal.open();
    session.fates.push('faulty');
    await expect(journal.commit(note('faulty'))).rejects.toMatchObject({ reason: 'faulty' });
    await journal.finish({ events: [], records: [] }, DONE);
    expect((await session.events(sessionId)).at(-1)?.type).toBe('completion');
  });

  it('fails to open where the grant is for another run', async () => {
    const assign = await session.assign();
    const { grant } = await session.assign();
    await expect(own({ ...assign, grant }).journal.open()).rejects.toMatchObject({ reason: 'grant_mismatch' });
  });

  it('waits for another grant where the one it has is not good any more', async () => {
    const assign = await session.assign();
    let { grant } = { grant: 'expired' };
    let asked = 0;
    const held = () => ((asked += 1), grant);
    const run = { sessionId: assign.sessionId, runId: assign.runId, epoch: assign.epoch };
    const inbox = new GrpcInbox();
    const journal = new GrpcJournal({ client: session.client, run, grant: held, inbox, logger });
    journals.push(journal);
    const opening = journal.open();
    await until(() => asked > 0);
    grant = assign.grant;
    expect((await opening).head.epoch).toBe(assign.epoch);
  });
});

describe('when the run is to be handed over', () => {
  it('stores what is under way, then the release', async () => {
    const { journal, inbox, sessionId } = own(await session.assign());
    await journal.open();
    const last = journal.commit(note('last'));
    inbox.stopFor('drained');
    await journal.release('drain');
    await last;
    expect(await notes(sessionId)).toEqual(['last']);
    expect((await session.head(sessionId)).run?.state).toBe('queued');
  });

  it('stores the release over another stream where the first is cut', async () => {
    const { journal, inbox, sessionId } = own(await session.assign());
    await journal.open();
    inbox.stopFor('drained');
    session.fates.push('lost');
    await journal.release('drain');
    expect((await session.head(sessionId)).run?.state).toBe('queued');
  });

  it('gives up where somebody else owns the run by then', async () => {
    const assign = await session.assign();
    const { journal, inbox } = own(assign);
    await journal.open();
    inbox.stopFor('drained');
    session.cut();
    const release = expect(journal.release('drain')).rejects.toEqual(new RunStopped('fenced'));
    await session.takeOver(assign);
    await release;
  });
});

it('ends its stream and keeps no timer when it is closed', async () => {
  const { journal } = own(await session.assign());
  await journal.open();
  session.cut();
  journal.delta({ agentId: 'a', depth: 0, step: 1, offset: 0, text: 'x', followsC: 1 });
  journal.close();
  await until(() => session.openJournals === 0);
  await expect(journal.commit(note('late'))).rejects.toEqual(new RunStopped('fenced'));
  expect(session.opens).toHaveLength(1);
});
