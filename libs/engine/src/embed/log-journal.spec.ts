import type { StoredEvent } from '@margay/contracts';
import type { RunOptions } from '@margay/log';
import { journalContract, VirtualClock, type JournalHarness } from '@margay/testing';
import { journalOn, LogInbox, LogJournal, memoryPorts, RunStopped } from '../index';
import { submit } from './commands';

const SESSION = 's'.repeat(32);
const RUN_OPTIONS: RunOptions = {
  model: 'm',
  fallbackModels: [],
  mode: 'act',
  mcpTools: null,
  capabilities: [],
  stepBudget: 0,
  engineVersion: 'test',
};
const RUN = {
  text: 'Go.',
  context: {},
  binding: { project: null, cwd: null },
  attachments: [],
  principal: 'local',
  pool: 'local',
  options: RUN_OPTIONS,
};

async function make(): Promise<JournalHarness> {
  const ports = { ...memoryPorts(), clock: new VirtualClock() };
  const inboxes: LogInbox[] = [];
  const log = journalOn(ports.store, {
    ...ports,
    onCommitted: (document) => inboxes.forEach((inbox) => inbox.observe(document)),
  });
  const { loop } = log;
  const deltas: string[] = [];
  const stop = new AbortController();
  const base = { tenantId: 'local', owner: 'local', tag: null, context: {}, binding: RUN.binding };
  await submit(loop, SESSION, { kind: 'create', commitId: 'create', ...base });
  await submit(loop, SESSION, { kind: 'accept', commitId: 'accept', run: RUN });
  const runId = `${SESSION}:r1`;
  let commits = 0;
  const id = (): string => `contract-${(commits += 1)}`;

  const own = async (epoch: number, signal: AbortSignal): Promise<{ journal: LogJournal; inbox: LogInbox }> => {
    const claim = { kind: 'claim' as const, commitId: id(), runId, epoch, owner: 'runner' };
    const { head } = await submit(loop, SESSION, claim);
    const inbox = new LogInbox(ports.store, SESSION, head, signal);
    inboxes.push(inbox);
    const onDelta = ({ text }: { text: string }): number => deltas.push(text);
    const scope = { tenantId: 'local', sessionId: SESSION, runId, epoch: head.epoch };
    return { inbox, journal: new LogJournal({ ...ports, ...log, ...scope, inbox, onDelta }) };
  };
  const { journal, inbox } = await own(1, stop.signal);
  return {
    journal,
    inbox,
    steer: (text) => submit(loop, SESSION, { kind: 'message', commitId: id(), run: { ...RUN, text } }),
    interrupt: () => submit(loop, SESSION, { kind: 'interrupt', commitId: id() }),
    cancel: async () => {
      await submit(loop, SESSION, { kind: 'cancel', commitId: id() });
      stop.abort(new RunStopped('canceled'));
    },
    takeOver: async () => {
      const takeover = { kind: 'takeover' as const, commitId: id(), runId, epoch: 2, cause: 'drain' as const };
      const { head } = await submit(loop, SESSION, takeover);
      return (await own(head.epoch, new AbortController().signal)).journal;
    },
    events: async () => {
      const events: StoredEvent[] = [];
      for await (const document of ports.store.range(SESSION, 1))
        events.push(...document.events.map(({ frame }) => JSON.parse(frame) as StoredEvent));
      return events;
    },
    deltas: () => deltas,
    close: async () => loop.close(),
  };
}

describe('the journal on a commit store', () => {
  it.each(journalContract(make))('$title', ({ check }) => check());

  it('takes a last answer that is too large for a commit', async () => {
    const harness = await make();
    const text = 'word '.repeat(200_000);
    const completion = { done: true, done_reason: 'completed', task_result: text };
    expect(await harness.journal.finish({ events: [], records: [] }, { text, completion })).toBe('finished');
    const said = (await harness.events()).find(({ type }) => type === 'assistant');
    expect(said?.payload).toMatchObject({ text_truncated: true, text_blob: { bytes: text.length } });
    await harness.close();
  });
});
