import { sessionsPb } from '@margay/contracts';
import { gatewayPrincipal, principalOf, SessionHarness } from './session-harness';
import { ScriptedRunner } from './scripted-runner';

const harness = new SessionHarness();
const attached: ScriptedRunner[] = [];
let count = 0;

function attach(slots?: number): ScriptedRunner {
  count += 1;
  const runner = new ScriptedRunner(harness.runners, `runner-${count}`, harness.pool, slots);
  attached.push(runner);
  return runner;
}

beforeAll(() => harness.start(), 600_000);
afterAll(() => harness.stop());
afterEach(() => {
  for (const runner of attached.splice(0)) runner.detach();
});

const message = {
  kind: 'assistant',
  agentId: 'root',
  text: 'a text that is quite a bit longer than sixty-four characters, so that it is stored once only',
};
const step = {
  kind: 'step',
  events: [{ type: 'agent_message', payload: { agent_id: 'root', depth: 0, text: message.text } }],
  records: [message],
};

describe('a run from acceptance to completion', () => {
  it('is assigned with its log, written step by step, and ends with one assistant and one completion', async () => {
    const runner = attach();
    const sessionId = await harness.createSession();
    const { runId } = await harness.accept(sessionId, 'hello');
    expect(runId).toBe(`${sessionId}:r1`);
    const assign = await runner.assignOf(sessionId);
    expect(assign).toMatchObject({ sessionId, runId, epoch: 2 });
    const journal = await runner.openJournal(assign);
    expect(journal.records.map(({ kind }) => kind)).toEqual(['run', 'user']);
    expect(await journal.send(step)).toMatchObject({ $case: 'committed' });
    expect(await journal.finish('done')).toMatchObject({ $case: 'committed' });
    const types = (await harness.events(sessionId)).map(({ type }) => type);
    expect(types).toEqual([
      'session',
      'context',
      'context',
      'run_accepted',
      'user',
      'agent_message',
      'assistant',
      'completion',
    ]);
    expect(JSON.parse((await harness.state(sessionId)).json)).toMatchObject({
      running: false,
      status: 'completed',
      title: 'hello',
    });
    journal.close();
  });

  it('gives the next owner the private records byte for byte', async () => {
    const runner = attach();
    const sessionId = await harness.createSession();
    await harness.accept(sessionId, 'hello');
    const first = await runner.openJournal(await runner.assignOf(sessionId));
    await first.send(step);
    await first.send({ kind: 'release', cause: 'drain' });
    const second = await runner.openJournal(await runner.assignOf(sessionId));
    expect(second.records.at(-1)).toEqual(message);
    first.close();
    second.close();
  });

  it('keeps a result of 300,000 characters exactly, beside a preview in the event', async () => {
    const runner = attach();
    const sessionId = await harness.createSession();
    await harness.accept(sessionId, 'read much');
    const journal = await runner.openJournal(await runner.assignOf(sessionId));
    const result = 'x'.repeat(300_000);
    const payload = {
      tool_id: 't',
      operation: 'get',
      tool_input: {},
      result,
      success: true,
      summary: '',
      agent_id: 'root',
      model: 'm',
    };
    await journal.send({
      kind: 'step',
      events: [{ type: 'tool_result', payload }],
      records: [{ kind: 'tool', text: result }],
    });
    await journal.send({ kind: 'release', cause: 'drain' });
    const next = await runner.openJournal(await runner.assignOf(sessionId));
    expect(next.records.at(-1)).toEqual({ kind: 'tool', text: result });
    const event = (await harness.events(sessionId)).at(-1);
    expect(String(event?.payload['result']).length).toBe(60_000);
    const { id: blobId } = event?.payload['result_blob'] as { id: string };
    const chunks: Uint8Array[] = [];
    for await (const { chunk } of harness.sessions.readBlob(
      { sessionId, blobId, offset: 10, length: 20 },
      { principal: harness.owner },
    ))
      chunks.push(chunk);
    expect(Buffer.concat(chunks).toString()).toBe('x'.repeat(20));
    journal.close();
    next.close();
  });
});

describe('two requests for one session', () => {
  it('accepts one of two queries at once and refuses the other', async () => {
    const sessionId = await harness.createSession();
    const outcomes = await Promise.allSettled([harness.accept(sessionId, 'a'), harness.accept(sessionId, 'b')]);
    expect(outcomes.map(({ status }) => status).toSorted()).toEqual(['fulfilled', 'rejected']);
    expect(outcomes.find(({ status }) => status === 'rejected')).toMatchObject({
      reason: { reason: 'session_running' },
    });
  });

  it('answers a repeated key with the first run, and refuses the key with another text', async () => {
    const sessionId = await harness.createSession();
    const first = await harness.accept(sessionId, 'a', 'key-1');
    expect(await harness.accept(sessionId, 'a', 'key-1')).toEqual({ runId: first.runId, replayed: true });
    await expect(harness.accept(sessionId, 'b', 'key-1')).rejects.toMatchObject({ reason: 'idempotency_key_reused' });
  });

  it('makes one session of two creations with one key, and of two with one tag', async () => {
    const create = (overrides: Partial<sessionsPb.CreateSessionRequest>) =>
      harness.createSession(harness.owner, overrides);
    const byKey = await Promise.all([create({ idempotencyKey: 'k' }), create({ idempotencyKey: 'k' })]);
    const byTag = await Promise.all([create({ sessionTag: 'room' }), create({ sessionTag: 'room' })]);
    expect(new Set(byKey).size).toBe(1);
    expect(new Set(byTag).size).toBe(1);
  });

  it('answers a repeated key of a tagged creation, and refuses it with another tag', async () => {
    const create = (sessionTag: string) =>
      harness.sessions.createSession(
        sessionsPb.CreateSessionRequest.fromPartial({ sessionTag, idempotencyKey: 'tagged-1' }),
        { principal: harness.owner },
      );
    const first = await create('hall');
    expect(await create('hall')).toEqual({ ...first, replayed: true });
    await expect(create('cellar')).rejects.toMatchObject({ reason: 'idempotency_key_reused' });
  });
});

describe('a person and a running agent', () => {
  it('steers: the item reaches the runner, and the run cannot end before the model has seen it', async () => {
    const runner = attach();
    const sessionId = await harness.createSession();
    await harness.accept(sessionId, 'hello');
    const journal = await runner.openJournal(await runner.assignOf(sessionId));
    const sent = await harness.sessions.sendMessage(
      sessionsPb.SendMessageRequest.fromPartial({ sessionId, text: 'be brief' }),
      { principal: harness.owner },
    );
    expect(sent.steered).toBe(true);
    expect(await journal.messages.take()).toMatchObject({
      $case: 'inbox',
      value: { items: [{ n: 1, kind: 'steer', text: 'be brief' }] },
    });
    expect(await journal.finish('done')).toMatchObject({ $case: 'rejected', value: { reason: 'inbox' } });
    expect(await journal.finish('done', 1)).toMatchObject({ $case: 'committed' });
    journal.close();
  });

  it('cancels: the runner is told, the sandbox fenced with a kill, and a repeat finds nothing to cancel', async () => {
    const runner = attach();
    const sessionId = await harness.createSession();
    await harness.accept(sessionId, 'hello');
    const journal = await runner.openJournal(await runner.assignOf(sessionId));
    expect(
      await harness.sessions.cancelRun({ sessionId, idempotencyKey: '' }, { principal: harness.owner }),
    ).toMatchObject({ canceled: true });
    expect(harness.fences).toContainEqual({ sessionId, epoch: 3, kill: true, background: true });
    expect(await journal.messages.take()).toMatchObject({ $case: 'cancel' });
    expect(
      await harness.sessions.cancelRun({ sessionId, idempotencyKey: '' }, { principal: harness.owner }),
    ).toMatchObject({ canceled: false });
    expect((await harness.events(sessionId)).at(-1)?.payload).toMatchObject({ done_reason: 'canceled' });
    journal.close();
  });

  it('cancels and interrupts once per key: a repeat is told what the first one was, and spares the next run', async () => {
    const sessionId = await harness.createSession();
    const request = { sessionId, idempotencyKey: 'stop-1' };
    const as = { principal: harness.owner };
    await harness.accept(sessionId, 'hello');
    expect(await harness.sessions.interruptRun(request, as)).toEqual({ interrupted: true, replayed: false });
    expect(await harness.sessions.interruptRun(request, as)).toEqual({ interrupted: true, replayed: true });
    expect(await harness.sessions.cancelRun(request, as)).toEqual({ canceled: true, replayed: false });
    await harness.accept(sessionId, 'the next one');
    expect(await harness.sessions.cancelRun(request, as)).toEqual({ canceled: true, replayed: true });
    expect(await harness.state(sessionId)).toMatchObject({ running: true });
    const steers = (await harness.events(sessionId)).filter(({ type }) => type === 'user_steer');
    expect(steers).toHaveLength(1);
    await harness.sessions.terminateSession({ sessionId }, as);
  });

  it('terminates for good: a repeat answers the same values, a query is refused', async () => {
    const sessionId = await harness.createSession();
    await harness.accept(sessionId, 'hello');
    const first = await harness.sessions.terminateSession({ sessionId }, { principal: harness.owner });
    expect(await harness.sessions.terminateSession({ sessionId }, { principal: harness.owner })).toEqual(first);
    await expect(harness.accept(sessionId, 'again')).rejects.toMatchObject({ reason: 'session_terminated' });
    expect(await harness.state(sessionId)).toMatchObject({ terminated: true, running: false });
    expect(harness.released).toContain(sessionId);
  });
});

describe('a lost runner', () => {
  it('loses its run to another one, and can write nothing afterwards', async () => {
    const first = attach();
    const sessionId = await harness.createSession();
    await harness.accept(sessionId, 'hello');
    const lost = await first.openJournal(await first.assignOf(sessionId));
    const second = attach();
    first.die();
    const assign = await second.assignOf(sessionId);
    expect(assign.epoch).toBe(4);
    const journal = await second.openJournal(assign);
    const answers = [await lost.messages.take()];
    expect(answers).toMatchObject([{ $case: 'fenced' }]);
    expect(await journal.finish('done')).toMatchObject({ $case: 'committed' });
    journal.close();
    lost.close();
  });

  it('takes back a run that the runner does not list in two successive beats', async () => {
    const runner = attach();
    const sessionId = await harness.createSession();
    await harness.accept(sessionId, 'hello');
    const first = await runner.assignOf(sessionId);
    // Of beats that come together only the newest counts, and the row may be written behind the first.
    const beating = setInterval(() => runner.heartbeat([]), 100);
    const again = await runner.assignOf(sessionId).finally(() => clearInterval(beating));
    expect(again).toMatchObject({ runId: first.runId, epoch: first.epoch + 2 });
  });
});

describe('tenants and keys', () => {
  it('shows a session to its owner and to nobody of another tenant, nor to another member', async () => {
    const sessionId = await harness.createSession();
    const foreign = principalOf('0123456789abcdef', 'user:eve', 'owner');
    const colleague = principalOf('default', 'user:bob', 'member');
    for (const principal of [foreign, colleague]) {
      await expect(harness.sessions.getState({ sessionId }, { principal })).rejects.toMatchObject({
        reason: 'session_not_found',
      });
      await expect(harness.accept(sessionId, 'x', '', principal)).rejects.toMatchObject({
        reason: 'session_not_found',
      });
      await expect(harness.events(sessionId, principal)).rejects.toMatchObject({ reason: 'session_not_found' });
    }
  });

  it('authenticates a key made for a new tenant, and no other secret', async () => {
    const operator = { principal: principalOf('_platform', 'platform:operator', 'operator') };
    const { tenantId } = await harness.access.createTenant({ slug: 'acme', name: 'Acme' }, operator);
    const { keyId, key } = await harness.access.createKey({ tenantId, label: 'ci', role: 'member' }, operator);
    const { createHash } = await import('node:crypto');
    const secretSha256 = createHash('sha256').update(key).digest();
    const ask = (secret: Buffer) =>
      harness.access.authenticate({ keyId, secretSha256: secret }, { principal: gatewayPrincipal });
    expect(await ask(secretSha256)).toMatchObject({ tenantId, principal: 'svc:ci', role: 'member', allScopes: true });
    await expect(ask(Buffer.alloc(32))).rejects.toMatchObject({ code: 'UNAUTHENTICATED' });
    await expect(
      harness.access.createTenant({ slug: 'x', name: '' }, { principal: harness.owner }),
    ).rejects.toMatchObject({ code: 'PERMISSION_DENIED' });
  });
});

describe('a restart of the service', () => {
  it('loses nothing: the log, the queue and the lists are there again', async () => {
    const sessionId = await harness.createSession();
    const { runId } = await harness.accept(sessionId, 'survive');
    await harness.stopReplica();
    await harness.startReplica();
    await harness.runners.waitForReady(60_000);
    await harness.sessions.waitForReady(60_000);
    const runner = attach();
    expect((await runner.assignOf(sessionId)).runId).toBe(runId);
    const { summariesJson } = await harness.sessions.listSessions(sessionsPb.ListSessionsRequest.fromPartial({}), {
      principal: harness.owner,
    });
    expect(summariesJson.map((json) => (JSON.parse(json) as { session_id: string }).session_id)).toContain(sessionId);
  });
});
