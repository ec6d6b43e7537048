import { acceptCommand, createCommand, hashed, messageCommand } from '@margay/testing';
import { fold, hashOf } from './build';
import type { Command } from './command';
import { commitKey, tipOf, type CommitDocument, type Tip } from './document';
import { emptyHead } from './head';
import { verifyLog } from './verify';

const SESSION = '0123456789abcdef0123456789abcdef';
const RUN_ID = `${SESSION}:r1`;
const claim: Command = { kind: 'claim', commitId: 'claim', runId: RUN_ID, epoch: 1, owner: 'runner' };

/** Six commits of a session: created, asked, claimed, steered twice, canceled. */
function log(): CommitDocument[] {
  const batches: Command[][] = [
    [createCommand()],
    [acceptCommand('question')],
    [claim],
    [messageCommand('first'), messageCommand('second')],
    [messageCommand('third')],
    [{ kind: 'cancel', commitId: 'cancel' }],
  ];
  let tip: Tip = { head: emptyHead(SESSION), hash: '' };
  return batches.map((commands, index) => {
    const { document } = fold(tip, commands.map(hashed), 1_700_000_000_000_000 + index * 1_000_000);
    if (!document) throw new Error('document expected');
    tip = tipOf(document);
    return document;
  });
}

/** The log with one commit changed by somebody who knows how to make its hash right again. */
function forged(c: number, change: (document: CommitDocument) => Partial<CommitDocument>): CommitDocument[] {
  return log().map((document, index, all) => {
    if (document.c !== c) return document;
    const changed = { ...document, ...change(document) };
    return { ...changed, hash: hashOf(all[index - 1]?.hash ?? '', changed) };
  });
}

const firstBad = (documents: CommitDocument[]): number | undefined => verifyLog(SESSION, documents)?.c;

describe('verifyLog', () => {
  it('finds nothing wrong with what fold has built, whether its effects are applied or not', () => {
    expect(verifyLog(SESSION, log())).toBeUndefined();
    expect(
      verifyLog(
        SESSION,
        log().map((document) => ({ ...document, effectsDueAt: null })),
      ),
    ).toBeUndefined();
    expect(verifyLog(SESSION, [])).toBeUndefined();
  });

  it('finds each field of a commit that was changed', () => {
    const changes: ((document: CommitDocument) => Partial<CommitDocument>)[] = [
      ({ events }) => ({ events: events.map((event) => ({ ...event, frame: event.frame.replace('first', 'worst') })) }),
      ({ records }) => ({ records: records.map((record) => record.replace('first', 'worst')) }),
      ({ head }) => ({ head: { ...head, title: 'another' } }),
      ({ commands }) => ({ commands: commands.map((command) => ({ ...command, answer: {} })) }),
      ({ ts0 }) => ({ ts0: ts0 - 1 }),
      () => ({ tenantId: 'other' }),
      () => ({ effects: [{ kind: 'session' }] }),
      () => ({ hash: 'f'.repeat(64) }),
    ];
    for (const change of changes) {
      const documents = log().map((document) => (document.c === 4 ? { ...document, ...change(document) } : document));
      expect(firstBad(documents)).toBe(4);
    }
  });

  it('finds a missing commit by its number, at the start and in the middle', () => {
    expect(verifyLog(SESSION, log().slice(1))).toEqual({ c: 1, problem: 'commit 1 is missing' });
    expect(
      verifyLog(
        SESSION,
        log().filter(({ c }) => c !== 4),
      ),
    ).toMatchObject({ c: 4 });
  });

  it('finds commits that changed places, also under each other’s numbers', () => {
    const [one, two, three, four, five, six] = log() as [CommitDocument, CommitDocument, CommitDocument, CommitDocument, CommitDocument, CommitDocument]; // prettier-ignore
    expect(firstBad([one, two, three, five, four, six])).toBe(4);
    const numbered = (document: CommitDocument, c: number): CommitDocument => ({
      ...document,
      _id: commitKey(SESSION, c),
      c,
      head: { ...document.head, c },
    });
    expect(firstBad([one, two, three, numbered(five, 4), numbered(four, 5), six])).toBe(4);
  });

  it('finds a commit that was rewritten with a right hash, by the one that follows', () => {
    const changed = forged(4, ({ head }) => ({ head: { ...head, title: 'another' } }));
    expect(verifyLog(SESSION, changed)).toMatchObject({ c: 5 });
  });

  it.each<[string, (document: CommitDocument) => Partial<CommitDocument>]>([
    ['ends at seq', ({ events }) => ({ events: events.slice(1) })],
    ['not dense', ({ events }) => ({ events: events.map((event) => ({ ...event, seq: event.seq + 1 })) })],
    ['does not rise', ({ events }) => ({ events: events.map((event) => ({ ...event, ts: 1 })) })],
    ['another number or time', ({ events }) => ({ events: events.map((event) => ({ ...event, frame: '{}' })) })],
    ['twice', () => ({ commitIds: ['first', 'first'] })],
    ['stored before', () => ({ commitIds: ['first', 'claim'] })],
    ['not those that it names', () => ({ commitIds: ['first', 'fresh'] })],
    ['epoch falls', ({ head }) => ({ head: { ...head, epoch: 1 } })],
    ['who created', ({ head }) => ({ head: { ...head, owner: 'mallory' } })],
    ['never accepted', ({ head }) => ({ head: { ...head, run: head.run && { ...head.run, no: 7 } } })],
    ['nobody sent', ({ head }) => ({ head: { ...head, run: head.run && { ...head.run, consumedTo: 3 } } })],
    ['cuts', ({ head }) => ({ head: { ...head, cuts: [[2, 99]] } })],
    ['another session', () => ({ sessionId: 'another' })],
    ['another commit', ({ head }) => ({ head: { ...head, c: 5 } })],
    ['not later', ({ head }) => ({ ts0: 1, head })],
  ])('finds what no command does, although the hash is right: %s', (problem, change) => {
    expect(verifyLog(SESSION, forged(4, change))).toEqual({ c: 4, problem: expect.stringContaining(problem) });
  });
});
