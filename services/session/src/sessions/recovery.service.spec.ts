import { isoMicros, parseMicros, type sessionsPb } from '@margay/contracts';
import { inlineBlobs, offloadCommand, unpackRecord } from '@margay/log';
import { acceptCommand, createCommand } from '@margay/testing';
import { MemorySession } from '../spec/memory-session';
import { RecoveryService } from './recovery.service';

let session: MemorySession;

beforeEach(async () => {
  session = new MemorySession();
  await session.submit(createCommand());
});

async function turn(text: string, attachments: unknown[] = []): Promise<void> {
  const command = await offloadCommand('tenant', acceptCommand(text, { attachments }), session.log.blobs);
  await session.submit({ ...command, commitId: text.slice(0, 9) });
  await session.finish();
}

function recover(fields: Partial<sessionsPb.RecoverSessionRequest> = {}): Promise<sessionsPb.RecoverSessionResponse> {
  const nothing = { fromTs: '', editedText: '', model: '', idempotencyKey: '' };
  const request = { sessionId: session.id, action: 'retry', ...nothing, ...fields };
  return new RecoveryService({ ...session.runPorts, log: session.log }).recover(session.owner, request);
}

const refusal = (fields: Partial<sessionsPb.RecoverSessionRequest> = {}): Promise<unknown> =>
  recover(fields).then(
    () => 'taken',
    (error: unknown) => (error as { reason: string }).reason,
  );

const texts = async (): Promise<unknown[]> => (await session.events('user')).map(({ payload }) => (payload as { text: string }).text); // prettier-ignore
const tsOf = async (no: number): Promise<string> => (await session.events('user'))[no]?.ts ?? '';

describe('a retry', () => {
  it.each<[string, (ts: string) => string]>([
    ['as it is written', (ts) => ts],
    ['in UTC by a letter', (ts) => ts.replace('+00:00', 'Z')],
    ['with the plus lost on its way', (ts) => ts.replace('+', ' ')],
    ['in another zone', (ts) => isoMicros((parseMicros(ts) ?? 0) + 7_200_000_000).replace('+00:00', '+02:00')],
  ])('finds its turn by the time %s', async (_, spelled) => {
    for (const text of ['one', 'two', 'three']) await turn(text);
    expect(await recover({ fromTs: spelled(await tsOf(1)) })).toMatchObject({ runId: `${session.id}:r4` });
    expect(await texts()).toEqual(['one', 'two']);
  });

  it('says the whole of a text that its event shows cut, with what was attached', async () => {
    const long = 'a long text '.repeat(10_000);
    await turn(long, [{ name: 'notes.txt' }]);
    await recover();
    const { c } = await session.head();
    const document = await session.store.readNumber(session.id, c);
    const frames = document?.events.map(({ frame }) => frame) ?? [];
    const record = document?.records.map((text) => unpackRecord(text, frames)).find(({ kind }) => kind === 'user');
    expect(record && (await inlineBlobs('tenant', record, session.log.blobs))).toMatchObject({ text: long });
    expect((await session.events('user'))[0]?.payload).toMatchObject({ attachments: [{ name: 'notes.txt' }] });
  });

  it('finds the last turn by itself, also one that was retried or carried on', async () => {
    await turn('one');
    await recover({ editedText: 'two' });
    await session.finish();
    await recover({ action: 'continue', editedText: 'three' });
    await session.finish();
    await recover({ editedText: 'four' });
    await session.finish();
    expect(await texts()).toEqual(['two', 'four']);
    expect(await session.events('completion')).toHaveLength(2);
    expect(await session.events('assistant')).toHaveLength(2);
  });

  it.each(['0', '1e400', '9'.repeat(60), 'yesterday', '-1'])('finds nothing at %s', async (fromTs) => {
    await turn('one');
    expect(await refusal({ fromTs })).toBe('nothing_to_recover');
  });

  it('finds neither a turn that is cut nor an event of another type', async () => {
    await turn('one');
    const cut = await tsOf(0);
    await recover();
    await session.finish();
    expect(await refusal({ fromTs: cut })).toBe('nothing_to_recover');
    expect(await refusal({ fromTs: (await session.events('assistant'))[0]?.ts ?? '' })).toBe('nothing_to_recover');
  });
});

it('starts nothing where the run that kept it busy ends meanwhile', async () => {
  await turn('one');
  await session.submit(acceptCommand('two'));
  const { confirmedTip } = session.log;
  jest.spyOn(session.log, 'confirmedTip').mockImplementation(async (id) => {
    const tip = await confirmedTip.call(session.log, id);
    if (tip.head.run) await session.submit({ kind: 'cancel', commitId: 'cancel' });
    return tip;
  });
  for (const action of ['continue', 'retry']) {
    expect(await refusal({ action })).toBe(action === 'continue' ? 'session_running' : 'taken');
  }
  expect((await session.head()).run).toMatchObject({ id: `${session.id}:r3`, pool: 'default' });
});

it('repeats what it said under one key, while the run goes on, after it, and when the session is over', async () => {
  await turn('one');
  const again = { runId: `${session.id}:r2`, replayed: true };
  const retry = { idempotencyKey: 'key', fromTs: await tsOf(0) };
  expect(await recover(retry)).toEqual({ ...again, replayed: false });
  expect(await recover(retry)).toEqual(again);
  expect(await refusal()).toBe('session_running');
  await session.finish();
  expect(await recover(retry)).toEqual(again);
  await session.submit({ kind: 'terminate', commitId: 'x', cancelledTriggers: 0 });
  expect(await recover(retry)).toEqual(again);
  expect(await refusal({ idempotencyKey: 'key', editedText: 'other' })).toBe('idempotency_key_reused');
  expect(await refusal()).toBe('session_terminated');
  expect(await refusal({ action: 'undo' })).toBe('invalid_action');
});
