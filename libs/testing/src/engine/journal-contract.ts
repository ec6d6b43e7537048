import assert from 'node:assert/strict';
import type { StoredEvent } from '@margay/contracts';
import { RunStopped, type Inbox, type Journal } from '@margay/engine';
import { until } from './run-world';

/** One session with one run, accepted and claimed by the owner whose journal this is; the log behind it is real. */
export interface JournalHarness {
  journal: Journal;
  inbox: Inbox;
  steer: (text: string) => Promise<unknown>;
  interrupt: () => Promise<unknown>;
  cancel: () => Promise<unknown>;
  /** Gives the run to another owner. @returns that one's journal */
  takeOver: () => Promise<Journal>;
  events: () => Promise<StoredEvent[]>;
  /** Text fragments that reached those who watch. */
  deltas: () => string[];
  close: () => Promise<unknown>;
}

export interface ContractCase {
  title: string;
  check: () => Promise<void>;
}

const note = (text: string) => ({ type: 'run_note' as const, payload: { text } });
const DONE = { text: 'Done.', completion: { done: true, done_reason: 'completed', task_result: 'Done.' } };

/**
 * What every `Journal` and its `Inbox` promise. Use: `it.each(journalContract(make))('$title', ({ check }) => check())`.
 */
export function journalContract(make: () => Promise<JournalHarness>): ContractCase[] {
  const within = async (body: (harness: JournalHarness) => Promise<void>): Promise<void> => {
    const harness = await make();
    try {
      await body(harness);
    } finally {
      await harness.close();
    }
  };
  return Object.entries(CASES).map(([title, body]) => ({ title, check: () => within(body) }));
}

const CASES: Record<string, (harness: JournalHarness) => Promise<void>> = {
  'opens with the records of the run, on a head of its own epoch': async ({ journal }) => {
    const { head, records } = await journal.open();
    assert.equal(head.run?.state, 'running');
    assert.deepEqual(
      records.map(({ record }) => record.kind),
      ['run', 'user'],
    );
  },
  'stores commits in the order of the calls, also when several are under way': async ({ journal, events }) => {
    const { head } = await journal.open();
    const texts = Array.from({ length: 20 }, (_, index) => `note ${index}`);
    const numbers = await Promise.all(texts.map((text) => journal.commit({ events: [note(text)], records: [] })));
    assert.deepEqual(
      [...numbers].sort((a, b) => a - b),
      numbers,
    );
    assert.ok((numbers[0] ?? 0) > head.c);
    assert.deepEqual(notesOf(await events()), texts);
  },
  'gives records back exactly, whatever their size': async ({ journal, takeOver }) => {
    await journal.open();
    const record = { kind: 'tool', text: 'ä"\n'.repeat(60_000), list: [{ text: 'x'.repeat(100) }], none: null };
    await journal.commit({ events: [note(record.text)], records: [record] });
    const { records } = await (await takeOver()).open();
    assert.deepEqual(records.at(-1)?.record, record);
  },
  'keeps the sandbox that the run committed to': async ({ journal, takeOver }) => {
    await journal.open();
    await journal.commit({ events: [], records: [], sandbox: { incarnation: 'one' } });
    const { head, records } = await (await takeOver()).open();
    assert.equal(head.sandbox?.incarnation, 'one');
    assert.deepEqual(records.at(-1)?.record, { kind: 'sandbox', incarnation: 'one' });
  },
  'stops an owner whose run was taken over, and writes nothing of it': async ({ journal, takeOver, events }) => {
    await journal.open();
    await takeOver();
    await assert.rejects(journal.commit({ events: [note('late')], records: [] }), isStopped('fenced'));
    await assert.rejects(journal.finish({ events: [], records: [] }, DONE), isStopped('fenced'));
    assert.deepEqual(notesOf(await events()), []);
  },
  'shows messages in order, and once each': async ({ journal, inbox, steer }) => {
    await journal.open();
    await steer('one');
    await steer('two');
    await until(() => inbox.since(0).length === 2);
    assert.deepEqual(
      inbox.since(0).map(({ kind, text }) => [kind, text]),
      [
        ['steer', 'one'],
        ['steer', 'two'],
      ],
    );
    assert.deepEqual(inbox.since(inbox.since(0)[0]?.n ?? 0).length, 1);
  },
  'shows a new owner the messages that the old one did not consume': async ({ journal, steer, inbox, takeOver }) => {
    await journal.open();
    await steer('read');
    await until(() => inbox.since(0).length === 1);
    const [read] = inbox.since(0);
    await journal.commit({ events: [], records: [], consumedTo: read?.n ?? 0 });
    await steer('unread');
    const { head, records } = await (await takeOver()).open();
    assert.equal(head.run?.consumedTo, read?.n);
    assert.equal(head.inboxEnd, (read?.n ?? 0) + 1);
    assert.deepEqual(records.at(-1)?.record, { kind: 'inbox', n: head.inboxEnd, item: 'steer', text: 'unread' });
  },
  'calls back at once on an interrupt': async ({ journal, inbox, interrupt }) => {
    await journal.open();
    let interrupts = 0;
    const stopListening = inbox.onItem(({ kind }) => (interrupts += kind === 'interrupt' ? 1 : 0));
    await interrupt();
    await until(() => interrupts === 1);
    stopListening();
    await interrupt();
    await until(() => inbox.since(0).length === 2);
    assert.equal(interrupts, 1);
  },
  'refuses the end while messages are unread, and shows them': async ({ journal, inbox, steer, events }) => {
    await journal.open();
    await steer('wait');
    assert.equal(await journal.finish({ events: [], records: [] }, DONE), 'inbox');
    await until(() => inbox.since(0).length === 1);
    const consumedTo = inbox.since(0)[0]?.n ?? 0;
    assert.equal(await journal.finish({ events: [], records: [], consumedTo }, DONE), 'finished');
    assert.deepEqual(
      (await events()).slice(-2).map(({ type }) => type),
      ['assistant', 'completion'],
    );
  },
  'stops the owner when the run is cancelled': async ({ journal, inbox, cancel }) => {
    await journal.open();
    await cancel();
    await until(() => inbox.stop.aborted);
    assert.ok(isStopped('canceled')(inbox.stop.reason));
    await assert.rejects(journal.commit({ events: [], records: [{ kind: 'late' }] }), isStopped());
  },
  'hands fragments of text on': async ({ journal, deltas }) => {
    const { head } = await journal.open();
    journal.delta({ agentId: 'a', depth: 0, step: 1, offset: 0, text: 'Hel', followsC: head.c });
    journal.delta({ agentId: 'a', depth: 0, step: 1, offset: 3, text: 'lo', followsC: head.c });
    await until(() => deltas().join('') === 'Hello');
  },
};

function notesOf(events: readonly StoredEvent[]): string[] {
  return events.flatMap((event) => (event.type === 'run_note' ? [event.payload.text] : []));
}

function isStopped(cause?: string): (error: unknown) => boolean {
  return (error) => error instanceof RunStopped && (cause === undefined || error.stopCause === cause);
}
