import { UnavailableError } from '@margay/errors';
import { GatewayHarness } from '../spec/gateway-harness';
import type { SseReader } from '../spec/sse-reader';

// Machines that run the tests may be busy with others.
const note = (text: string) => ({ type: 'run_note' as const, payload: { text } });

describe('a stream of many sessions', () => {
  let harness: GatewayHarness;

  beforeEach(() => {
    harness = new GatewayHarness();
  });
  afterEach(() => harness.stop());

  const sessions = (count: number) => Promise.all(Array.from({ length: count }, () => harness.session.createSession()));
  const start = async (sessionId: string) => {
    await harness.session.accept(sessionId, 'hi');
    await harness.session.claim(sessionId);
  };
  const follow = (wanted: string, more = '') => harness.follow(`/api/stream?sessions=${wanted}${more}`);
  /** Data of the frames under an event's name. */
  const of = (reader: SseReader, name: string) =>
    reader.text.split('\n\n').flatMap((block) => {
      const [event, data] = block.split('\n');
      return event === `event: ${name}` && data !== undefined ? [data.slice('data: '.length)] : [];
    });
  const typesOf = (reader: SseReader, name: string) =>
    of(reader, name).map((data) => (JSON.parse(data) as { type: string }).type);
  const storedOf = async (sessionId: string) => {
    const { body } = await harness.get(`/api/sessions/${sessionId}/events`);
    return (body as { events: unknown[] }).events.map((event) => JSON.stringify(event));
  };

  it('gives each session the bytes of its log under its name, from behind the number asked for', async () => {
    await harness.start();
    const [whole = '', part = '', live = ''] = await sessions(3);
    for (const id of [whole, part, live]) await start(id);
    const reader = await follow(`${whole}:0,${part}:3,${live}`);
    await reader.until(() => [whole, part, live].every((id) => typesOf(reader, id).includes('session_state')));
    for (const id of [whole, part, live]) {
      await harness.session.step(id, note('one'), note('two'));
      await harness.session.finish(id);
    }
    await reader.until(() => [whole, part, live].every((id) => typesOf(reader, id).includes('completion')));
    const stored = (texts: string[]) => texts.filter((text) => text.includes('"seq"'));
    expect(stored(of(reader, whole))).toEqual(await storedOf(whole));
    expect(stored(of(reader, part))).toEqual((await storedOf(part)).slice(3));
    expect(stored(of(reader, live))).toEqual((await storedOf(live)).slice(5));
  });

  it('tells the state where a run begins and ends, and goes on across runs without an end of its own', async () => {
    await harness.start();
    const [id = ''] = await sessions(1);
    const reader = await follow(id);
    await reader.untilType('session_state');
    for (const run of [1, 2]) {
      await start(id);
      await harness.session.finish(id);
      await reader.until(() => typesOf(reader, id).filter((type) => type === 'session_state').length === 1 + 2 * run);
    }
    const told = of(reader, id).filter((data) => data.includes('session_state'));
    expect(told.map((data) => (JSON.parse(data) as { running: boolean }).running)).toEqual([false, true, false, true, false]); // prettier-ignore
    expect(typesOf(reader, id)).not.toContain('stream_end');
    expect(reader.ended).toBeUndefined();
  });

  it('gives fragments of a running step under the name of its session', async () => {
    await harness.start();
    const [id = ''] = await sessions(1);
    await start(id);
    const reader = await follow(id);
    await reader.untilType('session_state');
    harness.session.publishDelta(id, 'Hel');
    await reader.untilType('agent_message_delta');
    expect(typesOf(reader, id)).toEqual(['session_state', 'agent_message_delta']);
    const quiet = await follow(id, '&deltas=0');
    await quiet.untilType('session_state');
    harness.session.publishDelta(id, 'lo', { offset: 3 });
    await harness.session.step(id, note('stored'));
    await quiet.untilType('run_note');
    expect(quiet.types).not.toContain('agent_message_delta');
  });

  it('answers for what may not be read under its name, and goes on with the others', async () => {
    await harness.start();
    const [id = ''] = await sessions(1);
    const foreign = await harness.session.createSession('other-tenant');
    const unknown = '0'.repeat(32);
    await start(id);
    const reader = await follow(`${unknown}:0,${id}:0,${foreign}`);
    await reader.until(() => [unknown, foreign].every((name) => typesOf(reader, name).includes('error')));
    for (const name of [unknown, foreign])
      expect(of(reader, name)).toEqual(['{"type":"error","code":"session_not_found"}']);
    await harness.session.step(id, note('still here'));
    await reader.untilType('run_note');
  });

  it('answers for a session that its ticket does not name', async () => {
    await harness.start();
    const [named = '', other = ''] = await sessions(2);
    const issued = await harness.post('/api/tickets', { purpose: 'stream', session_ids: [named] });
    const { ticket } = issued.body as { ticket: string };
    const reader = await harness.follow(`/api/stream?sessions=${named},${other}&user=1&ticket=${ticket}`, {});
    await reader.until(() => typesOf(reader, other).includes('error') && typesOf(reader, named).length > 0);
    expect(typesOf(reader, named)).toEqual(['session_state']);
    expect(of(reader, 'user')).toEqual([]);
  });

  it('takes up a session whose log cannot be read at first', async () => {
    await harness.start();
    const [id = ''] = await sessions(1);
    harness.session.failures.set('readCommits', new UnavailableError('unavailable', 'away'));
    const reader = await follow(`${id}:0`);
    await reader.untilType('session_state');
    expect(typesOf(reader, id)).toEqual(['session', 'context', 'session_state']);
  });

  it('carries a hundred sessions, whole and in order, to a reader who is slow to take them', async () => {
    await harness.start();
    const ids = await sessions(100);
    for (const id of ids) {
      await start(id);
      for (let n = 0; n < 3; n += 1) await harness.session.step(id, note('x'.repeat(6_000)));
    }
    const reader = await follow(ids.map((id) => `${id}:0`).join(','));
    for (let n = 0; n < 20; n += 1) {
      reader.response.pause();
      await new Promise((resolve) => setTimeout(resolve, 5));
      reader.response.resume();
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    await reader.until(({ text }) => text.split('"type":"session_state"').length > 100);
    for (const id of ids) {
      const seqs = of(reader, id).flatMap((data) => (JSON.parse(data) as { seq?: number }).seq ?? []);
      expect(seqs).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
    }
    expect(harness.gateway.hub.size).toBe(1);
  });

  it('cuts a reader who takes nothing of what is live', async () => {
    await harness.start();
    const [id = ''] = await sessions(1);
    await start(id);
    const reader = await follow(id);
    await reader.untilType('session_state');
    reader.response.pause();
    for (let n = 0; n < 150 && harness.gateway.hub.size > 0; n += 1) {
      await harness.session.step(id, note('x'.repeat(90_000)));
      await new Promise((resolve) => setImmediate(resolve));
    }
    await until(() => harness.gateway.hub.size === 0);
    expect(await harness.registry.getSingleMetricAsString('margay_stream_cuts_total')).toContain('{reason="slow"} 1');
  });

  it('says on shutdown when to come back, and closes', async () => {
    await harness.start();
    const [id = ''] = await sessions(1);
    const reader = await follow(id);
    await reader.untilType('session_state');
    await harness.gateway.close();
    await reader.untilEnd();
    expect([reader.ended, reader.text.endsWith('retry: 1000\n\n')]).toEqual(['clean', true]);
  });

  it('leaves no subscription behind', async () => {
    await harness.start();
    const before = harness.bus.subscriptions;
    const ids = await sessions(5);
    const reader = await follow(ids.join(','), '&user=1');
    await reader.until(() => ids.every((id) => typesOf(reader, id).length > 0));
    expect(harness.bus.subscriptions).toBe(before + 11);
    reader.close();
    await until(() => harness.bus.subscriptions === before);
    expect(harness.gateway.hub.size).toBe(0);
  });

  it.each([
    ['', 'nothing'],
    ['nonsense', 'no id'],
    [`${'a'.repeat(32)}:x`, 'no number'],
    [`${'a'.repeat(32)},${'a'.repeat(32)}:3`, 'one session twice'],
    [Array.from({ length: 101 }, (_, n) => n.toString(16).padStart(32, '0')).join(','), 'more than a hundred'],
  ])('is refused for %.40s: %s', async (wanted) => {
    await harness.start();
    const answer = await harness.get(`/api/stream?sessions=${wanted}`);
    expect([answer.status, answer.headers.get('x-margay-reason')]).toEqual([422, 'validation']);
  });

  describe('with the feed of its user', () => {
    const userStates = (reader: SseReader) =>
      of(reader, 'user').map((data) => JSON.parse(data) as { session_id: string; running: boolean; status: string });

    it('tells the states of the sessions in the list, then each change, also of sessions begun later', async () => {
      await harness.start();
      const [listed = ''] = await sessions(1);
      await start(listed);
      const reader = await harness.follow('/api/stream?user=1');
      await reader.until(() => userStates(reader).length === 1);
      expect(userStates(reader)).toMatchObject([{ session_id: listed, running: true, status: 'running' }]);
      await harness.session.step(listed, note('no change, though it says "state":"{}"'));
      await harness.session.finish(listed);
      await reader.until(() => userStates(reader).length === 2);
      expect(userStates(reader)[1]).toMatchObject({ session_id: listed, running: false, status: 'completed' });
      const later = await harness.session.createSession();
      await start(later);
      await reader.until(() => userStates(reader).some((state) => state.session_id === later && state.running));
    });

    it('tells nothing of sessions that the user cannot see', async () => {
      await harness.start();
      const key = harness.session.addKey({ principal: 'user:bob', role: 'member' });
      const reader = await harness.follow('/api/stream?user=1', { 'X-API-KEY': key.text });
      const [ofAda = ''] = await sessions(1);
      await start(ofAda);
      const ofBob = await harness.session.createSession('default', 'user:bob');
      await start(ofBob);
      await reader.until(() => userStates(reader).some((state) => state.session_id === ofBob && state.running));
      expect(reader.text).not.toContain(ofAda);
    });

    it('looks after a reconnection for what it did not hear', async () => {
      await harness.start({ streams: { userRefreshMs: 1 } });
      const [id = ''] = await sessions(1);
      await start(id);
      const reader = await harness.follow('/api/stream?user=1');
      await reader.until(() => userStates(reader).length === 1);
      harness.bus.isUp = false;
      await harness.session.finish(id);
      harness.bus.reconnect();
      await reader.until(() => userStates(reader).at(-1)?.running === false);
    });
  });
});

async function until(condition: () => boolean): Promise<void> {
  const deadline = performance.now() + 60_000;
  while (!condition()) {
    if (performance.now() > deadline) throw new Error('did not come true in time');
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
