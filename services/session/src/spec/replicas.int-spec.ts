import { sessionsPb, type runnersPb } from '@margay/contracts';
import { freePorts } from '@margay/launcher';
import { ScriptedRunner } from './scripted-runner';
import { SessionHarness, type Replica } from './session-harness';

const harness = new SessionHarness();
const attached: ScriptedRunner[] = [];
const sessionIds: string[] = [];
let second: Replica;
let count = 0;

/** Two replicas on one store whose broker never says a word. */
beforeAll(async () => {
  const [port] = await freePorts(1);
  await harness.start({ MARGAY_NATS_URL: `nats://127.0.0.1:${port}` });
  second = await harness.addReplica();
}, 600_000);
afterEach(async () => {
  for (const sessionId of sessionIds.splice(0))
    await harness.sessions.cancelRun({ sessionId, idempotencyKey: '' }, { principal: harness.owner });
  for (const runner of attached.splice(0)) runner.detach();
});
afterAll(async () => {
  await second.stop();
  await harness.stop();
});

function attach(client = second.runners, slots?: number): ScriptedRunner {
  count += 1;
  const runner = new ScriptedRunner(client, `runner-${count}`, harness.pool, slots);
  attached.push(runner);
  return runner;
}

/** A session with a run in the queue; what is left of it afterwards is cancelled. */
async function queuedSession(): Promise<string> {
  const sessionId = await harness.createSession();
  sessionIds.push(sessionId);
  await harness.accept(sessionId, 'hello');
  return sessionId;
}

const steer = (sessionId: string, text: string, { sessions }: Pick<Replica, 'sessions'>) =>
  sessions.sendMessage(sessionsPb.SendMessageRequest.fromPartial({ sessionId, text }), { principal: harness.owner });

describe('two replicas without a broker', () => {
  it('give a run that one accepted to a runner of the other', async () => {
    const runner = attach();
    const sessionId = await queuedSession();
    expect(await runner.assignOf(sessionId)).toMatchObject({ epoch: 2 });
  });

  it('tell a runner what was said through either, and that its run was cancelled through the other', async () => {
    const runner = attach();
    const sessionId = await queuedSession();
    const journal = await runner.openJournal(await runner.assignOf(sessionId));
    await steer(sessionId, 'here', second);
    expect(await journal.messages.take()).toMatchObject({ $case: 'inbox', value: { items: [{ n: 1, text: 'here' }] } });
    // By probes, since no broker says a word.
    await steer(sessionId, 'there', harness);
    expect(await journal.messages.take()).toMatchObject({
      $case: 'inbox',
      value: { items: [{ n: 2, text: 'there' }] },
    });
    await harness.sessions.cancelRun({ sessionId, idempotencyKey: '' }, { principal: harness.owner });
    expect(await journal.messages.take()).toMatchObject({ $case: 'cancel' });
    journal.close();
  });

  it('give each of 20 runs to one runner only', async () => {
    const runners = [attach(harness.runners, 20), attach(second.runners, 20)];
    const queued = await Promise.all(Array.from({ length: 20 }, queuedSession));
    const given: runnersPb.Assign[] = [];
    while (given.length < 20) {
      await new Promise((resolve) => setTimeout(resolve, 50));
      for (const { assigns } of runners) while (assigns.size > 0) given.push(await assigns.take());
    }
    expect(given.map(({ sessionId }) => sessionId).toSorted()).toEqual(queued.toSorted());
    expect(given.every(({ epoch }) => epoch === 2)).toBe(true);
  });

  it('renew the grant of a run that another replica gave away, and revoke one that has moved on', async () => {
    const first = attach(harness.runners);
    const sessionId = await harness.createSession();
    // The second replica remembers the session as it was before the run.
    await second.sessions.getState({ sessionId }, { principal: harness.owner });
    await harness.accept(sessionId, 'hello');
    const { runId, epoch } = await first.assignOf(sessionId);
    const other = attach();
    other.heartbeat([{ sessionId, runId, epoch }]);
    expect(await other.grantOf({ sessionId, runId, epoch })).toMatch(/\./);
    await harness.sessions.cancelRun({ sessionId, idempotencyKey: '' }, { principal: harness.owner });
    await second.sessions.getState({ sessionId }, { principal: harness.owner });
    other.heartbeat([{ sessionId, runId, epoch }]);
    expect(await other.revokes.take()).toMatchObject({ runId, epoch });
  });

  it('keep a run with its runner when that attaches to the other one', async () => {
    const client = harness.runners;
    const before = new ScriptedRunner(client, 'wanderer', harness.pool);
    const sessionId = await queuedSession();
    const assign = await before.assignOf(sessionId);
    const journal = await before.openJournal(assign, second.runners);
    before.die();
    const after = new ScriptedRunner(second.runners, 'wanderer', harness.pool);
    attached.push(after);
    after.heartbeat([assign]);
    await new Promise((resolve) => setTimeout(resolve, 3_000));
    after.heartbeat([assign]);
    expect(await journal.finish('done')).toMatchObject({ $case: 'committed' });
    journal.close();
  });

  it('let a person see through one what was written through the other', async () => {
    const sessionId = await queuedSession();
    const { state } = await second.sessions.getState({ sessionId }, { principal: harness.owner });
    expect(state).toMatchObject({ running: true });
    await expect(
      second.sessions.acceptRun(sessionsPb.AcceptRunRequest.fromPartial({ sessionId, text: 'again' }), {
        principal: harness.owner,
      }),
    ).rejects.toMatchObject({ reason: 'session_running' });
  });
});

describe('a replica that leaves', () => {
  it('sends its runners and their journals away; what was not answered there is stored once elsewhere', async () => {
    const leaving = await harness.addReplica();
    const runner = attach(leaving.runners);
    const sessionId = await queuedSession();
    const assign = await runner.assignOf(sessionId);
    const journal = await runner.openJournal(assign);
    const step = { kind: 'step', records: [{ kind: 'tool', text: 'once' }] };
    void journal.send(step, 'the step');
    const left = leaving.stop();
    await Promise.all([runner.ended, journal.ended]);
    const again = await runner.openJournal(assign, harness.runners);
    expect(await again.send(step, 'the step')).toMatchObject({ $case: 'committed', value: { commitId: 'the step' } });
    await left;
    const commits = (await harness.db()).collection('commits');
    expect(await commits.find({ sessionId, commitIds: 'the step' }).toArray()).toHaveLength(1);
    again.close();
  });
});
