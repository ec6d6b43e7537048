import { acceptCommand, createCommand, hashed, messageCommand, runRequest } from '@margay/testing';
import { fold } from './build';
import type { Command } from './command';
import { tipOf, type CommitDocument, type Tip } from './document';
import { ForkWriter, isHalfMade, type ForkPlan } from './fork';
import { emptyHead, type Head } from './head';
import { verifyLog } from './verify';

const START_MICROS = 1_700_000_000_000_000;
const STEPS = 60;
const SEEDS = Array.from({ length: 12 }, (_, index) => index + 1);

/** Mulberry32. */
function seeded(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) % below;
  };
}

interface Seen {
  seq: number;
  ts: number;
  type: string;
  runId: string | undefined;
}

function eventsOf(documents: CommitDocument[], cuts: Head['cuts'] = []): Seen[] {
  return documents
    .flatMap(({ events }) => events)
    .map(({ seq, ts, frame }) => {
      const { type, run_id: runId } = JSON.parse(frame) as { type: string; run_id?: string };
      return { seq, ts, type, runId };
    })
    .filter(({ seq }) => !cuts.some(([from, to]) => from <= seq && seq <= to));
}

/** A session as persons and runners may have left it: whatever is refused on the way does not happen. */
function history(sessionId: string, random: (below: number) => number): CommitDocument[] {
  const documents: CommitDocument[] = [];
  let tip: Tip = { head: emptyHead(sessionId), hash: '' };
  const commit = (...commands: Command[]): void => {
    const { document } = fold(tip, commands.map(hashed), START_MICROS + documents.length * 1_000_000);
    if (!document) return;
    documents.push(document);
    tip = tipOf(document);
  };
  commit(createCommand());
  for (let no = 1; no <= STEPS; no++)
    commit(
      ...Array.from({ length: 1 + random(3) }, (_, part) => someCommand(tip.head, documents, `${no}.${part}`, random)),
    );
  return documents;
}

function someCommand(head: Head, documents: CommitDocument[], id: string, random: (below: number) => number): Command {
  const runId = head.run?.id ?? 'none';
  const { epoch } = head;
  const user = eventsOf(documents, head.cuts).findLast(({ type }) => type === 'user');
  const call = { tool_call_id: id, tool_id: 't', operation: 'o', tool_input: {}, agent_id: 'a', model: 'm' };
  const question = { call_id: id, call_token: 't', questions: [], timeout_seconds: null, notes_placeholder: null };
  const run = { commitId: id, runId, epoch };
  const commands: Command[] = [
    { ...acceptCommand(`accept ${id}`), commitId: id },
    { ...messageCommand(`message ${id}`), commitId: id },
    { ...run, kind: 'claim', owner: 'runner' },
    { ...run, kind: 'claim', owner: 'runner' },
    { ...run, kind: 'step', events: [{ type: 'tool_call', payload: call }], records: [{ kind: 'assistant', toolCalls: [{ callId: id }] }], consumedTo: head.inboxEnd }, // prettier-ignore
    { ...run, kind: 'step', events: [{ type: 'tool_result', payload: { ...call, result: id, success: true, summary: '' } }], records: [{ kind: 'tool', callId: id, text: id }] }, // prettier-ignore
    { ...run, kind: 'step', events: [{ type: 'user_question', payload: question }], records: [], questions: [{ callId: id, timeoutSeconds: null }] }, // prettier-ignore
    { ...run, kind: 'release', cause: 'drain' },
    { ...run, kind: 'takeover', cause: 'crash' },
    { ...run, kind: 'finish', events: [], records: [], text: `answer ${id}`, completion: { done: true, done_reason: 'completed' }, consumedTo: head.inboxEnd }, // prettier-ignore
    { kind: 'cancel', commitId: id },
    { kind: 'recover', commitId: id, action: 'continue', run: runRequest('go on') },
    { kind: 'recover', commitId: id, action: 'retry', run: runRequest('again'), ...(user ? { from: { seq: user.seq, ts: user.ts, runId: user.runId ?? '' } } : {}) }, // prettier-ignore
  ];
  return commands[random(commands.length)] as Command;
}

function forkAt(documents: CommitDocument[], sessionId: string, ts: number | null): CommitDocument[] {
  const { head } = documents.at(-1) as CommitDocument;
  const c = ts === null ? head.c : (documents.findLast(({ ts0 }) => ts0 <= ts)?.c ?? 1);
  const source = { sessionId: head.sessionId, c, ts: ts ?? head.ts, cuts: head.cuts };
  const plan: ForkPlan = { sessionId, tenantId: head.tenantId, owner: 'eve', tag: null, title: null, model: null, source, forkedAtTs: ts }; // prettier-ignore
  const writer = new ForkWriter(plan);
  const copied = documents.slice(0, c).map((document) => writer.add(document));
  const last = (): CommitDocument => writer.close(START_MICROS + 86_400_000_000, { commitId: 'fork', bodyHash: '' });
  return [...copied, writer.flush(), last()].filter((document) => document !== undefined);
}

/** What holds of every fork. @returns its last head */
function check(fork: CommitDocument[], source: CommitDocument[], ts: number | null): Head {
  const { sessionId, head } = fork.at(-1) as CommitDocument;
  expect(verifyLog(sessionId, fork)).toBeUndefined();
  expect(fork.slice(0, -1).every((document) => isHalfMade(document.head))).toBe(true);
  expect([head.run, head.terminated, head.cuts, head.questions, isHalfMade(head)]).toEqual([null, null, [], undefined, false]); // prettier-ignore
  const visible = eventsOf(source, source.at(-1)?.head.cuts).filter((event) => ts === null || event.ts <= ts);
  const copied = eventsOf(fork).slice(0, visible.length);
  expect(copied.map(({ type, ts: at }) => [type, at])).toEqual(visible.map(({ type, ts: at }) => [type, at]));
  // Each run is over, once; of one that was run again readers see the acceptance alone.
  const runs = (wanted: string): (string | undefined)[] => eventsOf(fork).filter(({ type }) => type === wanted).map(({ runId }) => runId); // prettier-ignore
  const over = runs('completion');
  expect(new Set(over).size).toBe(over.length);
  expect(runs('user').filter((runId) => !over.includes(runId))).toEqual([]);
  const next = fold(tipOf(fork.at(-1) as CommitDocument), [hashed({ ...acceptCommand('next'), commitId: 'next' })], 0);
  expect(next.document?.head.run?.no).toBe(head.runNo + 1);
  return head;
}

it.each(SEEDS)('a fork at any event, and a fork of it, is a session in order: seed %i', (seed) => {
  const random = seeded(seed);
  const source = history('a'.repeat(32), random);
  const { head } = source.at(-1) as CommitDocument;
  for (const ts of [null, ...eventsOf(source, head.cuts).map((event) => event.ts)]) {
    if (ts === null && head.run) continue; // refused while a run is active
    const fork = forkAt(source, 'b'.repeat(32), ts);
    check(fork, source, ts);
    const points = eventsOf(fork);
    const point = points[random(points.length)]?.ts ?? null;
    check(forkAt(fork, 'c'.repeat(32), point), fork, point);
  }
});
