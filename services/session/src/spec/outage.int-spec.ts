import { setTimeout as pause } from 'node:timers/promises';
import { sessionsPb } from '@margay/contracts';
import { ScriptedRunner } from './scripted-runner';
import { SessionHarness } from './session-harness';
import { TcpGate } from './tcp-gate';

const harness = new SessionHarness();
const unhandled: unknown[] = [];
const note = (error: unknown): void => void unhandled.push(error);
let gate: TcpGate;
let replica: Awaited<ReturnType<SessionHarness['addReplica']>>;

beforeAll(async () => {
  process.on('unhandledRejection', note);
  await harness.start();
  await harness.stopReplica();
  const { hostname, port } = new URL(harness.storeUrl);
  gate = new TcpGate({ host: hostname, port: Number(port) });
  const url = new URL(harness.storeUrl);
  url.port = String(await gate.start());
  replica = await harness.addReplica({ MARGAY_MONGODB_URL: url.toString() });
}, 600_000);
afterAll(async () => {
  await replica.stop();
  await gate.stop();
  await harness.stop();
  process.off('unhandledRejection', note);
});

const { owner: principal } = harness;

async function createSession(): Promise<string> {
  const request = sessionsPb.CreateSessionRequest.fromPartial({});
  return (await replica.sessions.createSession(request, { principal })).sessionId;
}

const accept = (sessionId: string) =>
  replica.sessions.acceptRun(sessionsPb.AcceptRunRequest.fromPartial({ sessionId, text: 'hello' }), { principal });

describe('an outage of the store', () => {
  it('loses no command, keeps runners at work, and tells readers that it is one', async () => {
    const runner = new ScriptedRunner(replica.runners, 'runner', harness.pool);
    const sessionId = await createSession();
    const idle = await createSession();
    await accept(sessionId);
    const assign = await runner.assignOf(sessionId);
    const journal = await runner.openJournal(assign);
    while (runner.acks.size > 0) await runner.acks.take();

    gate.shut();
    const step = journal.send({ kind: 'step', records: [{ kind: 'tool', text: 'done while it was away' }] });
    const accepted = accept(idle);
    // Answered while the store is still away.
    runner.heartbeat([assign]);
    expect((await runner.acks.take()).grants).toMatchObject([{ runId: assign.runId }]);
    const unknown = 'ab'.repeat(16);
    await expect(replica.sessions.getState({ sessionId: unknown }, { principal })).rejects.toMatchObject({
      reason: 'store_unavailable',
    });
    await pause(500);
    gate.open();

    expect(await step).toMatchObject({ $case: 'committed' });
    expect(await accepted).toMatchObject({ replayed: false });
    // The beats that waited for the store are no reason to take the run away.
    runner.heartbeat([assign]);
    expect(await journal.finish('done')).toMatchObject({ $case: 'committed' });
    const { state } = await replica.sessions.getState({ sessionId }, { principal });
    expect(JSON.parse(state?.json ?? '')).toMatchObject({ status: 'completed' });
    expect(unhandled).toEqual([]);
    journal.close();
    runner.detach();
  });

  it('does not keep a replica from leaving', async () => {
    const { hostname, port } = new URL(harness.storeUrl);
    const own = new TcpGate({ host: hostname, port: Number(port) });
    const url = new URL(harness.storeUrl);
    url.port = String(await own.start());
    const cut = await harness.addReplica({ MARGAY_MONGODB_URL: url.toString() });
    const request = sessionsPb.CreateSessionRequest.fromPartial({});
    const { sessionId } = await cut.sessions.createSession(request, { principal });
    own.shut();
    const refused = cut.sessions
      .acceptRun(sessionsPb.AcceptRunRequest.fromPartial({ sessionId, text: 'hello' }), { principal })
      .catch((error: unknown) => error);
    await pause(200);
    // The store stays away until it has left.
    await cut.stop();
    expect(await refused).toBeInstanceOf(Error);
    await own.stop();
    expect(unhandled).toEqual([]);
  });
});
