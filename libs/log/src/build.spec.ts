import { acceptCommand, createCommand, hashed, messageCommand } from '@margay/testing';
import { bodyHash, fold, hashOf } from './build';
import { canonicalJson } from './canonical';
import type { Command, LeaveCause } from './command';
import { tipOf, type CommitDocument, type Tip } from './document';
import { emptyHead } from './head';
import { unpackRecord } from './references';

const START: Tip = { head: emptyHead('session'), hash: '' };
const NOW = 1_700_000_000_000_000;
const RUN_ID = 'session:r1';

function folded(tip: Tip, commands: Command[], nowMicros = NOW): CommitDocument {
  const { document, rejected } = fold(tip, commands.map(hashed), nowMicros);
  if (!document || rejected.length > 0) throw new Error(`refused: ${JSON.stringify(rejected)}`);
  return document;
}

const claim: Command = { kind: 'claim', commitId: 'claim', runId: RUN_ID, epoch: 1, owner: 'runner' };
const cancel: Command = { kind: 'cancel', commitId: 'cancel' };

describe('fold', () => {
  it('builds one document from a batch whose commands see those before them', () => {
    const document = folded(START, [createCommand(), acceptCommand('question'), messageCommand('word')]);
    expect(document).toMatchObject({ _id: 'session.0000000001', c: 1, commitIds: ['create', 'question', 'word'] });
    expect(document.commands.map(({ answer }) => answer)).toEqual([
      { session_id: 'session' },
      { session_id: 'session', run_id: RUN_ID, steered: false },
      { session_id: 'session', steered: true },
    ]);
    expect(document.head).toMatchObject({ c: 1, seq: 6, inboxEnd: 1, epoch: 1 });
  });

  it('leaves refused commands out and decides the rest without them', () => {
    const items = [createCommand(), acceptCommand('one'), acceptCommand('two'), cancel, acceptCommand('three')].map(
      hashed,
    );
    const { document, accepted, rejected } = fold(START, items, NOW);
    expect(accepted.map(({ command }) => command.commitId)).toEqual(['create', 'one', 'cancel', 'three']);
    expect(rejected).toMatchObject([
      { item: { command: { commitId: 'two' } }, rejection: { reason: 'session_running' } },
    ]);
    expect(document?.head.run?.id).toBe('session:r2');
    expect(fold(START, [hashed(cancel)], NOW).document).toBeUndefined();
  });

  it('makes the same bytes from the same tip, commands and time', () => {
    const commands = [createCommand(), acceptCommand('question')];
    expect(JSON.stringify(folded(START, commands))).toBe(JSON.stringify(folded(START, commands)));
  });

  it('serialises each event once, with its number, its time and its run', () => {
    const { events } = folded(START, [createCommand(), acceptCommand('question')]);
    expect(events.map(({ frame }) => frame)).toEqual([
      '{"ts":"2023-11-14T22:13:20.000000+00:00","type":"session","payload":{"event":"created"},"seq":1}',
      '{"ts":"2023-11-14T22:13:20.000001+00:00","type":"context","payload":{},"seq":2}',
      `{"ts":"2023-11-14T22:13:20.000002+00:00","type":"context","payload":{},"seq":3,"run_id":"${RUN_ID}"}`,
      `{"ts":"2023-11-14T22:13:20.000003+00:00","type":"run_accepted","payload":{"session_id":"session",` +
        `"run_id":"${RUN_ID}","ts":"2023-11-14T22:13:20.000003+00:00"},"seq":4,"run_id":"${RUN_ID}"}`,
      `{"ts":"2023-11-14T22:13:20.000004+00:00","type":"user","payload":{"text":"question"},"seq":5,"run_id":"${RUN_ID}"}`,
    ]);
  });

  it('lets time rise strictly under a clock that goes back, also in commits without events', () => {
    const first = folded(START, [createCommand()]);
    const second = folded(tipOf(first), [acceptCommand('question')], NOW - 5_000_000);
    const third = folded(tipOf(second), [claim], NOW - 9_000_000);
    const fourth = folded(tipOf(third), [messageCommand('word')], 0);
    const times = [first, second, third, fourth].flatMap(({ ts0, events, head }) => [
      ...(events.length > 0 ? events.map(({ ts }) => ts) : [ts0]),
      ...(events.length > 0 && events.at(-1)?.ts !== head.ts ? [NaN] : []),
    ]);
    expect(times).toEqual(Array.from({ length: times.length }, (_, index) => NOW + index));
    expect(third.events).toEqual([]);
  });

  it('chains hashes over all but the mark of effects', () => {
    const first = folded(START, [createCommand()]);
    const second = folded(tipOf(first), [acceptCommand('question')]);
    expect(hashOf('', first)).toBe(first.hash);
    expect(hashOf(first.hash, { ...second, effectsDueAt: 1 } as CommitDocument)).toBe(second.hash);
    expect(hashOf('other', second)).not.toBe(second.hash);
    expect(hashOf(first.hash, { ...second, ts0: second.ts0 + 1 })).not.toBe(second.hash);
  });

  it('hashes alike what a store gives back, whatever it did to absent fields, key order and broken surrogates', () => {
    const lone = { a: 1, b: `x${'\uD83D'}`, c: undefined };
    const stored = { b: Buffer.from(lone.b, 'utf8').toString('utf8'), a: 1 };
    expect(canonicalJson(lone)).toBe(canonicalJson(stored));
  });

  it('stores a long text of a record that an event holds as a reference to it', () => {
    const text = 'a long question '.repeat(20);
    const { records, events } = folded(START, [createCommand(), acceptCommand('one', { text })]);
    expect(records[1]).toBe(`{"kind":"user","runId":"${RUN_ID}","text":{"$event":[4,"text"]},"attachments":[]}`);
    expect(
      unpackRecord(
        records[1] as string,
        events.map(({ frame }) => frame),
      ),
    ).toMatchObject({ kind: 'user', text });
  });

  it('marks effects by the wall clock, not by the times of the log', () => {
    const first = folded(START, [createCommand()]);
    const second = folded(tipOf(first), [acceptCommand('question')], NOW - 60_000_000);
    expect(second.effectsDueAt).toBe((NOW - 60_000_000) / 1_000 + 1_500);
    expect(folded(tipOf(second), [messageCommand('word')]).effectsDueAt).toBeNull();
  });
});

describe('bodyHash', () => {
  it('is the same for two attempts of one request and differs for another one', () => {
    const one = acceptCommand('question', { traceparent: '00-a-b-01' });
    const two = { ...acceptCommand('question', { traceparent: '00-c-d-01' }), commitId: 'other' };
    two.run.options = { ...two.run.options, engineVersion: '2' };
    expect(bodyHash(two)).toBe(bodyHash(one));
    expect(bodyHash(acceptCommand('another question'))).not.toBe(bodyHash(one));
    expect(bodyHash(messageCommand('question'))).not.toBe(bodyHash(one));
  });

  it('tells requests by what the client sent where that is known', () => {
    const one = acceptCommand('question', { requestHash: 'same', context: { a: 1 } });
    expect(bodyHash(acceptCommand('other', { requestHash: 'same' }))).toBe(bodyHash(one));
  });

  it('does not count what a replica found when it took a termination', () => {
    const terminate = (cancelledTriggers: number): Command => ({ kind: 'terminate', commitId: 't', cancelledTriggers });
    expect(bodyHash(terminate(2))).toBe(bodyHash(terminate(0)));
  });

  it('does not count why a run changes hands, but at which epoch', () => {
    const takeover = (cause: LeaveCause, epoch = 2): Command => ({
      kind: 'takeover',
      commitId: 't',
      runId: RUN_ID,
      epoch,
      cause,
    });
    expect(bodyHash(takeover('lease'))).toBe(bodyHash(takeover('unlisted')));
    expect(bodyHash(takeover('lease', 4))).not.toBe(bodyHash(takeover('lease')));
  });
});

describe('effects', () => {
  const created = folded(START, [createCommand()]);
  const queued = folded(tipOf(created), [acceptCommand('question')]);
  const running = folded(tipOf(queued), [claim]);
  const row = (state: string, epoch: number, owner: string | null = null) => ({
    kind: 'run',
    runId: RUN_ID,
    state,
    epoch,
    owner,
  });

  it('project the session and the run where they change', () => {
    expect(created.effects).toEqual([{ kind: 'session' }]);
    expect(queued.effects).toEqual([{ kind: 'session' }, row('queued', 1)]);
    expect(running.effects).toEqual([{ kind: 'session' }, row('running', 2, 'runner')]);
  });

  it('are none for a step', () => {
    const step: Command = { kind: 'step', commitId: 'step', runId: RUN_ID, epoch: 2, events: [], records: [] };
    expect(folded(tipOf(running), [step]).effects).toEqual([]);
  });

  it('fence whoever drove a run that ends, and stop what runs', () => {
    const { effects } = folded(tipOf(running), [cancel]);
    expect(effects).toEqual([
      { kind: 'session' },
      row('done', 3),
      { kind: 'fence', runId: RUN_ID, epoch: 3, kill: true },
    ]);
  });

  it('fence whoever drove a run that another takes over, also within one commit', () => {
    const takeover: Command = { kind: 'takeover', commitId: 'takeover', runId: RUN_ID, epoch: 2, cause: 'lease' };
    const fence = (epoch: number) => ({ kind: 'fence', runId: RUN_ID, epoch, kill: false });
    expect(folded(tipOf(running), [takeover]).effects).toContainEqual(fence(3));
    const claimed: Command = { ...claim, commitId: 'again', epoch: 3, owner: 'other' };
    const { effects } = folded(tipOf(running), [takeover, claimed]);
    expect(effects).toEqual([row('running', 4, 'other'), fence(4)]);
  });

  it('write one row per run, whatever happened to it within one commit', () => {
    const { effects } = folded(tipOf(queued), [cancel, acceptCommand('second'), { ...cancel, commitId: 'again' }]);
    expect(effects.filter(({ kind }) => kind === 'run')).toEqual([row('done', 4)]);
  });

  it('refresh the row of a session each 64th commit', () => {
    let tip = tipOf(running);
    for (let n = 0; tip.head.c < 64; n++) {
      const word = folded(tip, [messageCommand(`word ${n}`)]);
      expect(word.effects).toEqual(word.c === 64 ? [{ kind: 'session' }] : []);
      tip = tipOf(word);
    }
  });
});
