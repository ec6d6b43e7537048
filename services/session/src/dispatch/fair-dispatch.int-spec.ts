import { randomUUID } from 'node:crypto';
import { sessionsPb, type Principal, type runnersPb } from '@margay/contracts';
import type { TenantRow } from '../access/access.repository';
import { ScriptedRunner } from '../spec/scripted-runner';
import { principalOf, SessionHarness, type Replica } from '../spec/session-harness';
import type { RunRow } from './run.repository';

/** Of the tenant `owner` alone. */
const OWN_POOL = `own-${randomUUID()}`;
const harness = new SessionHarness();
const attached: ScriptedRunner[] = [];
let second: Replica;
let count = 0;

beforeAll(async () => {
  // Runners here beat so often that an assignment may lie between two beats.
  await harness.start({
    MARGAY_RUN_UNLISTED_SECONDS: '5',
    MARGAY_RUNNER_POOLS: JSON.stringify({ [OWN_POOL]: ['owner'] }),
  });
  second = await harness.addReplica();
}, 600_000);
afterEach(async () => {
  for (const runner of attached.splice(0)) runner.detach();
  const rows = await (
    await harness.db()
  )
    .collection<RunRow>('runs')
    .find({ state: { $ne: 'done' } })
    .toArray();
  for (const { sessionId, tenantId, principal } of rows)
    await harness.sessions.cancelRun({ sessionId, idempotencyKey: '' }, { principal: principalOf(tenantId, principal, 'owner') }); // prettier-ignore
});
afterAll(async () => {
  await second.stop();
  await harness.stop();
});

function attach(slots: number, client = harness.runners, pool = harness.pool): ScriptedRunner {
  count += 1;
  const runner = new ScriptedRunner(client, `fair-${count}`, pool, slots);
  attached.push(runner);
  return runner;
}

async function tenant(id: string, fields: Partial<TenantRow> = {}): Promise<Principal> {
  const tenants = (await harness.db()).collection<TenantRow>('tenants');
  await tenants.insertOne({ _id: id, tenantId: id, slug: id, name: id, state: 'active', createdAt: new Date(), ...fields }); // prettier-ignore
  return principalOf(id, 'svc:ci', 'owner');
}

/** Runs of a tenant, each in a session of its own, accepted through both replicas. */
async function queue(principal: Principal, runs: number): Promise<string[]> {
  const ids: string[] = [];
  for (let i = 0; i < runs; i++) {
    const sessionId = await harness.createSession(principal);
    const replica = i % 2 === 0 ? harness : second;
    const request = sessionsPb.AcceptRunRequest.fromPartial({ sessionId, text: 'go' });
    await replica.sessions.acceptRun(request, { principal });
    ids.push(sessionId);
  }
  return ids;
}

async function until(holds: () => Promise<boolean>): Promise<void> {
  while (!(await holds())) await new Promise((resolve) => setTimeout(resolve, 20));
}

async function running(tenantId: string): Promise<number> {
  return (await harness.db()).collection<RunRow>('runs').countDocuments({ tenantId, state: 'running' });
}

async function finish(runner: ScriptedRunner, assign: runnersPb.Assign): Promise<void> {
  const journal = await runner.openJournal(assign);
  expect(await journal.finish('done')).toMatchObject({ $case: 'committed' });
  journal.close();
}

/** Takes runs from a runner, each for a moment, and says how many of a tenant ran at once. */
async function serve(runner: ScriptedRunner, tenantId: string, seen: number[], isOver: () => boolean): Promise<void> {
  const held = new Map<string, runnersPb.Assign>();
  const drive = async (assign: runnersPb.Assign): Promise<void> => {
    seen.push(await running(tenantId));
    await new Promise((resolve) => setTimeout(resolve, 20));
    await finish(runner, assign);
    held.delete(assign.runId);
  };
  while (!isOver()) {
    while (runner.assigns.size > 0) {
      const assign = await runner.assigns.take();
      held.set(assign.runId, assign);
      void drive(assign);
    }
    runner.heartbeat([...held.values()], 10 - held.size);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

it('keeps a tenant at its cap over two replicas whose runners both have room, and starts the next as one leaves', async () => {
  const principal = await tenant('capped', { ceilings: { concurrentRuns: 3 } });
  await queue(principal, 24);
  // Both look at the same time.
  const runners = [attach(10), attach(10, second.runners)];
  const seen: number[] = [];
  let isOver = false;
  const serving = runners.map((runner) => serve(runner, 'capped', seen, () => isOver));
  const rows = (await harness.db()).collection<RunRow>('runs');
  await until(async () => (await rows.countDocuments({ tenantId: 'capped', state: 'done' })) === 24);
  isOver = true;
  await Promise.all(serving);
  expect(seen).toHaveLength(24);
  expect(Math.max(...seen)).toBeLessThanOrEqual(3);
});

it('gives runs of a tenant with a pool of its own to the runners of that pool alone', async () => {
  const [owner, other] = [await tenant('owner'), await tenant('other')];
  const [shared, own] = [attach(5), attach(5, second.runners, OWN_POOL)];
  const [ownSession] = await queue(owner, 1);
  const [otherSession] = await queue(other, 1);
  const [ofOwn, ofShared] = [await own.assigns.take(), await shared.assigns.take()];
  expect([ofOwn.sessionId, ofShared.sessionId]).toEqual([ownSession, otherSession]);
  expect([own.assigns.size, shared.assigns.size]).toEqual([0, 0]);
});

it('starts the only run of a tenant next, however many another one has queued before', async () => {
  const [many, one] = [await tenant('many'), await tenant('one')];
  const runner = attach(1);
  const first = await queue(many, 12);
  const assign = await runner.assigns.take();
  expect(first).toContain(assign.sessionId);
  const [only] = await queue(one, 1);
  await finish(runner, assign);
  // Either is next: nobody has a run running.
  const next = await runner.assigns.take();
  const heavy = attach(1);
  const after = await heavy.assigns.take();
  expect([next.sessionId, after.sessionId]).toContain(only);
});

it('gives runs by weight', async () => {
  const light = await tenant('light', { weight: 10 });
  const heavy = await tenant('heavy', { weight: 30 });
  await queue(light, 8);
  await queue(heavy, 8);
  const rows = (await harness.db()).collection<RunRow>('runs');
  const tenantId = { $in: ['light', 'heavy'] };
  // Rows follow what is accepted.
  await until(async () => (await rows.countDocuments({ tenantId, state: 'queued' })) === 16);
  const runner = attach(8);
  const tenants = new Map<string, number>();
  for (let i = 0; i < 8; i++) {
    const { sessionId } = await runner.assigns.take();
    const row = await rows.findOne({ sessionId });
    tenants.set(row?.tenantId ?? '', (tenants.get(row?.tenantId ?? '') ?? 0) + 1);
  }
  expect(Object.fromEntries(tenants)).toEqual({ light: 2, heavy: 6 });
});

it('shows where queued runs stand in states, lists and event pages, and nothing once they run', async () => {
  const principal = await tenant('positions');
  const ids = await queue(principal, 3);
  const listed = async () => {
    const request = sessionsPb.ListSessionsRequest.fromPartial({});
    const { summariesJson } = await harness.sessions.listSessions(request, { principal });
    const summaries = summariesJson.map((json) => JSON.parse(json) as { session_id: string; queue_position?: number });
    return ids.map((id) => summaries.find((summary) => summary.session_id === id)?.queue_position);
  };
  // Each replica looks now and then, and rows follow what is accepted.
  await until(async () => (await listed()).join() === '1,2,3');
  const stateOf = async (sessionId = '') => {
    const { state } = await harness.sessions.getState({ sessionId }, { principal });
    return JSON.parse(state?.json ?? '{}') as { running?: boolean; queue_position?: number };
  };
  await until(async () => (await stateOf(ids[1])).queue_position === 2);
  expect(await stateOf(ids[1])).toMatchObject({ running: true });
  const paged = async () => {
    const request = sessionsPb.ReadCommitsRequest.fromPartial({ sessionId: ids[2] ?? '' });
    let position: unknown;
    for await (const page of second.sessions.readCommits(request, { principal }))
      if (page.state) position = (JSON.parse(page.state.json) as { queue_position?: number }).queue_position;
    return position;
  };
  await until(async () => (await paged()) === 3);
  const runner = attach(3);
  for (let i = 0; i < 3; i++) await runner.assigns.take();
  expect(await stateOf(ids[1])).not.toHaveProperty('queue_position');
});

describe('the management port', () => {
  let origin: string;

  beforeAll(async () => {
    const { port } = await second.management.start();
    second.management.setReady(true);
    origin = `http://127.0.0.1:${port}`;
  });
  afterAll(() => second.management.close());

  const get = async (path: string) => {
    const response = await fetch(`${origin}${path}`);
    return { status: response.status, body: (await response.json()) as unknown };
  };

  it('tells demand with running runs and without waiting ones, and the slots of all runners', async () => {
    const principal = await tenant('demand');
    const runner = attach(2);
    await queue(principal, 4);
    const assigns = [await runner.assigns.take(), await runner.assigns.take()];
    const [waits] = assigns;
    if (!waits) throw new Error('assignment expected');
    const journal = await runner.openJournal(waits);
    const callId = `${waits.sessionId}.2.1.0`;
    const asked = await journal.send({
      kind: 'step',
      events: [
        {
          type: 'user_question',
          payload: { call_id: callId, call_token: 't', questions: [], timeout_seconds: null, notes_placeholder: null },
        },
      ],
      records: [],
      questions: [{ callId, timeoutSeconds: null }],
    });
    expect(asked).toMatchObject({ $case: 'committed' });
    const released = await journal.send({ kind: 'release', cause: 'waiting', waiting: { for: [callId], inboxEnd: 0 } });
    expect(released).toMatchObject({ $case: 'committed' });
    journal.close();
    // Its slot is free: the next run starts.
    runner.heartbeat([assigns[1] as runnersPb.Assign], 1);
    await runner.assigns.take();
    const demand = async () => (await get(`/internal/demand/${harness.pool}`)).body as { running: number; queued: number }; // prettier-ignore
    // The claim is stored before its row is written.
    await until(async () => {
      const { running, queued } = await demand();
      return running === 2 && queued === 1;
    });
    expect(await demand()).toMatchObject({ queued: 1, running: 2, demand: 3, slots: 2, oldestQueuedSeconds: expect.any(Number) }); // prettier-ignore
  });

  it('refuses to be ready while the clock is more than 2 s off the store, and recovers', async () => {
    expect(await get('/readyz')).toMatchObject({ status: 200 });
    const now = Date.now;
    const spy = jest.spyOn(Date, 'now').mockImplementation(() => now() + 3_000);
    try {
      expect(await get('/readyz')).toMatchObject({ status: 503, body: { failed: ['session.clock'] } });
    } finally {
      spy.mockRestore();
    }
    expect(await get('/readyz')).toMatchObject({ status: 200 });
  });
});
