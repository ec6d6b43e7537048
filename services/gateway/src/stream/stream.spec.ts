import { UnavailableError } from '@margay/errors';
import { GatewayHarness } from '../spec/gateway-harness';
import type { SseReader } from '../spec/sse-reader';

// Machines that run the tests may be busy with others.
const call = (step: number) => ({
  type: 'llm_call_start' as const,
  payload: { agent_id: 'root', depth: 0, step, model: 'scripted/echo' },
});
const callEnd = (step: number, success = true) => ({
  type: 'llm_call_end' as const,
  payload: { agent_id: 'root', depth: 0, step, success, model: 'scripted/echo' },
});
const note = (text: string) => ({ type: 'run_note' as const, payload: { text } });

describe('session stream', () => {
  let harness: GatewayHarness;
  let id: string;
  const start = async (overrides: Parameters<GatewayHarness['start']>[0] = {}) => {
    await harness.start(overrides);
    id = await harness.session.createSession();
  };
  const startRun = async () => {
    await harness.session.accept(id, 'hi');
    await harness.session.claim(id);
  };
  const textsOf = (frames: { payload?: Record<string, unknown> }[]) => frames.map(({ payload }) => payload?.['text']);

  beforeEach(() => {
    harness = new GatewayHarness();
  });
  afterEach(() => harness.stop());

  describe('of an idle session', () => {
    it('replays everything, tells the state twice and ends without waiting for anything', async () => {
      await start({ streams: { gapMs: 60_000, probeMs: 60_000, heartbeatMs: 60_000, lingerMs: 60_000 } });
      const reader = await (await harness.stream(id)).untilEnd();
      expect(reader.types).toEqual(['session', 'context', 'session_state', 'session_state', 'stream_end']);
      expect(reader.ended).toBe('clean');
    });

    it('answers with exactly the headers of a stream', async () => {
      await start();
      const { response } = await harness.stream(id, '', { 'X-Request-Id': 'spec-1', Origin: 'http://console.test' });
      expect(response.headers).toMatchObject({
        'content-type': 'text/event-stream; charset=utf-8',
        'cache-control': 'no-cache, no-transform',
        'x-accel-buffering': 'no',
        'x-request-id': 'spec-1',
        'access-control-allow-origin': '*',
      });
    });

    it('sends a flat state without ts and payload', async () => {
      await start();
      const reader = await (await harness.stream(id)).untilEnd();
      expect(reader.frames[2]).toEqual({
        type: 'session_state',
        running: false,
        status: 'idle',
        done_reason: null,
        title: `Session ${id.slice(0, 8)}`,
        recoverable: false,
        terminated: false,
        terminated_at: null,
      });
    });

    it('ends a terminated one too', async () => {
      await start();
      await harness.post(`/api/sessions/${id}/terminate`);
      const reader = await (await harness.stream(id)).untilEnd();
      expect(reader.types.slice(-3)).toEqual(['session_state', 'session_state', 'stream_end']);
      expect(reader.frames.at(-2)).toMatchObject({ terminated: true, status: 'terminated' });
    });
  });

  describe('of a run', () => {
    it('forwards each event once, the bytes of the log, and ends after its completion', async () => {
      await start();
      await startRun();
      const reader = await (await harness.stream(id)).untilType('session_state');
      await harness.session.step(id, call(1), note('one'), note('two'));
      await harness.session.finish(id);
      await reader.untilEnd();
      expect(reader.types).toEqual([
        ...['session', 'context', 'context', 'run_accepted', 'user', 'session_state'],
        ...['llm_call_start', 'run_note', 'run_note', 'assistant', 'completion', 'session_state', 'stream_end'],
      ]);
      const { body } = await harness.get(`/api/sessions/${id}/events`);
      const { events } = body as { events: unknown[] };
      const data = reader.text.split('\n\n').filter((block) => block.includes('"seq"'));
      expect(data).toEqual(events.map((event) => `data: ${JSON.stringify(event)}`));
    });

    it('stays open while a run is active, with a heartbeat after each silence', async () => {
      await start({ streams: { heartbeatMs: 150 } });
      await startRun();
      const reader = await harness.stream(id);
      await reader.until(({ text }) => text.split(': heartbeat\n\n').length > 3);
      expect(reader.types).not.toContain('stream_end');
    });

    it('goes on where a second run begins before the end is confirmed', async () => {
      await start();
      await startRun();
      const reader = await (await harness.stream(id)).untilType('session_state');
      let release = () => {};
      harness.session.delays.set('getState', new Promise((resolve) => (release = resolve)));
      await harness.session.finish(id);
      await reader.untilType('completion');
      await harness.session.accept(id, 'again');
      release();
      await reader.untilType('user', 2);
      harness.session.delays.clear();
      await harness.session.claim(id);
      await harness.session.finish(id);
      await reader.untilEnd();
      expect(reader.types.filter((type) => type === 'stream_end')).toHaveLength(1);
      expect(reader.types.filter((type) => type === 'completion')).toHaveLength(2);
    });

    it('tells the state again where something beside the log has changed, e.g. the place in the queue', async () => {
      await start();
      await harness.session.accept(id, 'hi');
      const reader = await (await harness.stream(id)).untilType('session_state');
      harness.session.restate(id, { queue_position: 4 });
      await reader.untilType('session_state', 2);
      expect(reader.text).toContain('"queue_position":4');
      await harness.session.claim(id);
      await harness.session.finish(id);
      await reader.untilEnd();
      expect(reader.types.filter((type) => type === 'session_state')).toHaveLength(3);
    });

    it('ends once, however often the end is announced', async () => {
      await start();
      await startRun();
      const reader = await (await harness.stream(id)).untilType('session_state');
      const messages = harness.bus.hold();
      await harness.session.finish(id);
      harness.bus.release([messages[0], messages[0], messages[0]]);
      await reader.untilEnd();
      expect(reader.types.filter((type) => type === 'stream_end')).toHaveLength(1);
      expect(reader.types.filter((type) => type === 'session_state')).toHaveLength(2);
    });

    it('waits for the confirmation when the store of states is away for a moment', async () => {
      await start();
      await startRun();
      const reader = await (await harness.stream(id)).untilType('session_state');
      harness.session.failures.set('getState', new UnavailableError('unavailable', 'away'));
      await harness.session.finish(id);
      await reader.untilEnd();
      expect(reader.types.at(-1)).toBe('stream_end');
    });

    it('shares one subscription among all listeners of a session, and one that lingers', async () => {
      await start();
      await startRun();
      const before = harness.bus.subscriptions;
      const readers = await Promise.all([1, 2, 3].map(() => harness.stream(id)));
      await Promise.all(readers.map((reader) => reader.untilType('session_state')));
      expect(harness.bus.subscriptions).toBe(before + 2);
      await harness.session.step(id, note('for all'));
      for (const reader of readers) await reader.untilType('run_note');
      for (const reader of readers) reader.close();
      await harness.session.finish(id);
      await until(() => harness.bus.subscriptions === before);
    });
  });

  describe('order', () => {
    it('drops duplicates and puts reordered commits right', async () => {
      await start({ streams: { gapMs: 2_000 } });
      await startRun();
      const reader = await (await harness.stream(id)).untilType('session_state');
      const messages = harness.bus.hold();
      for (const text of ['1', '2', '3', '4']) await harness.session.step(id, note(text));
      harness.bus.release([messages[1], messages[0], messages[0], messages[3], messages[2], messages[1]]);
      await reader.untilType('run_note', 4);
      expect(textsOf(reader.frames.filter(({ type }) => type === 'run_note'))).toEqual(['1', '2', '3', '4']);
    });

    it('reads a gap from the store', async () => {
      await start({ streams: { probeMs: 60_000 } });
      await startRun();
      const reader = await (await harness.stream(id)).untilType('session_state');
      const messages = harness.bus.hold();
      for (const text of ['1', '2', '3']) await harness.session.step(id, note(text));
      harness.bus.release([messages[2]]);
      await reader.untilType('run_note', 3);
      expect(textsOf(reader.frames.filter(({ type }) => type === 'run_note'))).toEqual(['1', '2', '3']);
    });

    it('takes a commit without public events for no gap', async () => {
      await start({ streams: { gapMs: 60_000, probeMs: 60_000 } });
      await harness.session.accept(id, 'hi');
      const reader = await (await harness.stream(id)).untilType('session_state');
      await harness.session.claim(id);
      await harness.session.step(id, note('after the claim'));
      await reader.untilType('run_note');
    });

    it('fetches a commit that was too large to be announced whole', async () => {
      await start();
      await startRun();
      const reader = await (await harness.stream(id)).untilType('session_state');
      await harness.session.step(id, note('x'.repeat(300_000)));
      await reader.untilType('run_note');
      await harness.session.finish(id);
      await reader.untilEnd();
      expect(reader.types.at(-1)).toBe('stream_end');
    });

    it('waits for no gap with a commit that was announced by its number, also while it reads another', async () => {
      await start({ streams: { gapMs: 60_000, probeMs: 60_000 } });
      await startRun();
      let release = () => {};
      harness.session.delays.set('readCommits', new Promise((resolve) => (release = resolve)));
      const opening = harness.stream(id);
      await until(() => harness.session.countOf('readCommits') === 1);
      await harness.session.step(id, note('y'.repeat(300_000)));
      release();
      const reader = await (await opening).untilType('run_note');
      harness.session.delays.set('readCommits', new Promise((resolve) => (release = resolve)));
      await harness.session.step(id, note('x'.repeat(300_000)));
      await until(() => harness.session.countOf('readCommits') >= 2);
      await harness.session.step(id, note('x'.repeat(300_000)));
      release();
      harness.session.delays.clear();
      await reader.untilType('run_note', 3);
    });

    it('loses nothing that is committed while it replays', async () => {
      await start();
      await startRun();
      for (let n = 0; n < 30; n += 1) await harness.session.step(id, note(`before ${n}`));
      let release = () => {};
      harness.session.delays.set('readCommits', new Promise((resolve) => (release = resolve)));
      const opening = harness.stream(id);
      await until(() => harness.session.countOf('readCommits') === 1);
      for (let n = 0; n < 30; n += 1) await harness.session.step(id, note(`meanwhile ${n}`));
      release();
      harness.session.delays.clear();
      const reader = await opening;
      await harness.session.finish(id);
      await reader.untilEnd();
      const seqs = reader.frames.flatMap(({ seq }) => seq ?? []);
      expect(seqs).toEqual(seqs.map((_, index) => index + 1));
      expect(seqs).toHaveLength(harness.session.head(id).seq);
    });

    it('reads again when more is committed meanwhile than it may hold', async () => {
      await start();
      await startRun();
      let release = () => {};
      harness.session.delays.set('readCommits', new Promise((resolve) => (release = resolve)));
      const opening = harness.stream(id);
      await until(() => harness.session.countOf('readCommits') === 1);
      for (let n = 0; n < 11; n += 1)
        await harness.session.step(id, ...Array.from({ length: 100 }, () => note(String(n))));
      release();
      harness.session.delays.clear();
      const reader = await opening;
      await harness.session.finish(id);
      await reader.untilEnd();
      const seqs = reader.frames.flatMap(({ seq }) => seq ?? []);
      expect(seqs).toEqual(seqs.map((_, index) => index + 1));
      expect(seqs).toHaveLength(harness.session.head(id).seq);
    });
  });

  it.each([1, 2, 3, 4, 5])(
    'gives every reader each event once and in order, whatever the broker does (seed %i)',
    async (seed) => {
      const random = seeded(seed);
      await start({ streams: { gapMs: 10, probeMs: 30, lingerMs: 5 } });
      harness.bus.leaveToChance(random);
      await startRun();
      const readers: SseReader[] = [];
      for (let n = 0; n < 150; n += 1) {
        await harness.session.step(id, ...Array.from({ length: Math.floor(random() * 3) }, () => note(`${n}`)));
        harness.session.publishDelta(id, 'word');
        if (random() < 0.08) readers.push(await harness.stream(id, random() < 0.5 ? '' : '?ids=1'));
        else if (random() < 0.03) readers.shift()?.close();
        else if (random() < 0.5) await new Promise((resolve) => setTimeout(resolve, random() * 6));
      }
      await harness.session.finish(id);
      const { seq } = harness.session.head(id);
      for (const reader of readers) {
        await reader.untilEnd();
        expect(reader.frames.flatMap((frame) => frame.seq ?? [])).toEqual(Array.from({ length: seq }, (_, n) => n + 1));
        expect(reader.types.slice(-2)).toEqual(['session_state', 'stream_end']);
        expect(reader.types.filter((type) => type === 'session_state')).toHaveLength(2);
      }
    },
  );

  describe('while the broker is silent', () => {
    it('finds commits by the probe', async () => {
      await start();
      await startRun();
      const reader = await (await harness.stream(id)).untilType('session_state');
      harness.bus.isUp = false;
      await harness.session.step(id, note('unheard'));
      await reader.untilType('run_note');
      await harness.session.finish(id);
      await reader.untilEnd();
      expect(reader.types.at(-1)).toBe('stream_end');
    });

    it('probes at once after a reconnection', async () => {
      await start({ streams: { probeMs: 60_000 } });
      await startRun();
      const reader = await (await harness.stream(id)).untilType('session_state');
      harness.bus.isUp = false;
      await harness.session.step(id, note('unheard'));
      harness.bus.reconnect();
      await reader.untilType('run_note');
    });

    it('probes many sessions with one call', async () => {
      await start();
      const ids = await Promise.all(Array.from({ length: 5 }, () => harness.session.createSession()));
      for (const session of ids) await harness.session.accept(session, 'hi');
      for (const session of ids) await (await harness.stream(session)).untilType('session_state');
      harness.session.calls.length = 0;
      await until(() => harness.session.countOf('probeCommits') >= 1);
      const [probe] = harness.session.calls.filter(({ method }) => method === 'probeCommits');
      expect((probe?.request as { probes: unknown[] }).probes).toHaveLength(5);
    });
  });

  describe('cursors', () => {
    it('replays from `after` inclusively, as time text, with a lost plus, or as epoch seconds', async () => {
      await start();
      await startRun();
      await harness.session.finish(id);
      const all = (await (await harness.stream(id)).untilEnd()).frames.filter(({ seq }) => seq !== undefined);
      const ts = all[3]?.ts ?? '';
      const micros = Date.parse(ts) / 1_000;
      const spellings = [encodeURIComponent(ts), ts.replace('+', ' '), ts, `${Math.trunc(micros)}.${ts.slice(20, 26)}`];
      for (const after of spellings) {
        const reader = await (await harness.stream(id, `?after=${after}`)).untilEnd();
        expect(reader.frames.filter(({ seq }) => seq !== undefined)).toEqual(all.slice(3));
      }
    });

    it('resumes after `Last-Event-ID`, which wins and switches ids on', async () => {
      await start();
      await startRun();
      const reader = await harness.stream(id, '?after=2000-01-01', { 'Last-Event-ID': '3' });
      await reader.untilType('session_state');
      expect(reader.frames.flatMap(({ seq }) => seq ?? [])).toEqual([4, 5]);
      expect(reader.text).toContain('id: 4\ndata: {');
      await harness.session.step(id, note('live'));
      await reader.until(({ text }) => text.includes('id: 6\ndata: {'));
    });

    it('has no id lines unless asked for', async () => {
      await start();
      expect((await (await harness.stream(id)).untilEnd()).text).not.toContain('id: ');
      expect((await (await harness.stream(id, '?ids=1')).untilEnd()).text).toContain('id: 1\ndata: {');
    });

    it('starts over for an id of another store generation', async () => {
      await start();
      const reader = await (await harness.stream(id, '', { 'Last-Event-ID': '7.2' })).untilEnd();
      expect(reader.types.slice(0, 2)).toEqual(['session', 'context']);
    });

    it('refuses an `after` it cannot read', async () => {
      await start();
      const answer = await harness.get(`/api/sessions/${id}/stream?after=yesterday`);
      expect(answer.status).toBe(400);
      expect(answer.body).toEqual({ message: "Invalid input: 'after' must be an ISO-8601 timestamp or epoch seconds" });
    });
  });

  describe('fragments', () => {
    const deltas = (reader: SseReader) => reader.frames.filter(({ type }) => type === 'agent_message_delta');

    it('carry the time of the last stored event, so that a cursor never passes one', async () => {
      await start();
      await startRun();
      const reader = await (await harness.stream(id)).untilType('session_state');
      await harness.session.step(id, call(1));
      harness.session.publishDelta(id, 'Hel', { offset: 0 });
      harness.session.publishDelta(id, 'lo', { offset: 3 });
      await reader.untilType('agent_message_delta', 2);
      const [started] = reader.frames.filter(({ type }) => type === 'llm_call_start');
      const runId = harness.session.head(id).run?.id;
      expect(deltas(reader)).toEqual([
        {
          ts: started?.ts,
          type: 'agent_message_delta',
          payload: { text: 'Hel', agent_id: 'root', depth: 0, step: 1, offset: 0 },
          run_id: runId,
        },
        {
          ts: started?.ts,
          type: 'agent_message_delta',
          payload: { text: 'lo', agent_id: 'root', depth: 0, step: 1, offset: 3 },
          run_id: runId,
        },
      ]);
    });

    it('never follow the message of their step, but do follow a failed call or a new start', async () => {
      await start();
      await startRun();
      const reader = await (await harness.stream(id)).untilType('session_state');
      await harness.session.step(id, call(1));
      await harness.session.step(id, callEnd(1, false));
      harness.session.publishDelta(id, 'retried');
      await harness.session.step(id, callEnd(1), {
        type: 'agent_message',
        payload: { agent_id: 'root', depth: 0, text: 'all' },
      });
      harness.session.publishDelta(id, 'too late');
      harness.session.publishDelta(id, 'another agent', { agent: 'abc' });
      harness.session.publishDelta(id, 'next step', { step: 2 });
      await harness.session.step(id, call(1));
      harness.session.publishDelta(id, 'again');
      await reader.untilType('agent_message_delta', 4);
      await harness.session.finish(id);
      await reader.untilEnd();
      expect(textsOf(deltas(reader))).toEqual(['retried', 'another agent', 'next step', 'again']);
    });

    it('wait for the commit they follow, and are dropped where even the store does not have it', async () => {
      await start({ streams: { probeMs: 60_000 } });
      await startRun();
      const reader = await (await harness.stream(id)).untilType('session_state');
      const messages = harness.bus.hold();
      await harness.session.step(id, call(1));
      harness.session.publishDelta(id, 'early');
      harness.bus.release([messages[1]]);
      await reader.untilType('agent_message_delta');
      expect(reader.types.slice(-2)).toEqual(['llm_call_start', 'agent_message_delta']);
      const reads = harness.session.countOf('readCommits');
      harness.session.publishDelta(id, 'from nowhere', { c: 9_999 });
      await until(() => harness.session.countOf('readCommits') > reads);
      await harness.session.step(id, note('after'));
      await reader.untilType('run_note');
      expect(deltas(reader)).toHaveLength(1);
    });

    it('are left out on request', async () => {
      await start();
      await startRun();
      const reader = await (await harness.stream(id, '?deltas=0')).untilType('session_state');
      harness.session.publishDelta(id, 'unwanted');
      await harness.session.step(id, note('wanted'));
      await reader.untilType('run_note');
      expect(deltas(reader)).toHaveLength(0);
    });

    it('reach a reader that joins in mid-step, also behind a commit the runner does not know', async () => {
      await start();
      await startRun();
      const c = await harness.session.step(id, callEnd(1), call(2));
      await harness.post(`/api/sessions/${id}/message`, { text: 'steer' });
      const reader = await (await harness.stream(id)).untilType('session_state');
      harness.session.publishDelta(id, 'too late', { c, step: 1 });
      harness.session.publishDelta(id, 'growing', { c, step: 2 });
      await reader.untilType('agent_message_delta');
      expect(textsOf(deltas(reader))).toEqual(['growing']);
    });

    it('reach a reader that resumed behind the last event', async () => {
      await start();
      await startRun();
      const { seq } = harness.session.head(id);
      const reader = await (await harness.stream(id, '', { 'Last-Event-ID': String(seq) })).untilType('session_state');
      harness.session.publishDelta(id, 'still');
      await reader.untilType('agent_message_delta');
      expect(reader.frames.flatMap(({ seq: seen }) => seen ?? [])).toEqual([]);
    });
  });

  describe('clients that do not read', () => {
    const flood = async () => {
      const text = 'x'.repeat(90_000);
      for (let n = 0; n < 120; n += 1) {
        await harness.session.step(id, note(text), note(text));
        // The log is in memory: without this nobody could read meanwhile.
        await new Promise((resolve) => setImmediate(resolve));
      }
    };

    it('are cut when too much is unsent', async () => {
      await start();
      await startRun();
      const slow = await (await harness.stream(id)).untilType('session_state');
      const quick = await (await harness.stream(id)).untilType('session_state');
      slow.response.pause();
      await flood();
      await until(() => harness.gateway.hub.size === 1);
      expect(await harness.registry.getSingleMetricAsString('margay_stream_cuts_total')).toContain('{reason="slow"} 1');
      await quick.untilType('run_note', 240);
      slow.response.resume();
      await slow.untilEnd();
      expect(slow.ended).toBe('cut');
    });

    it('miss fragments rather than being cut for them', async () => {
      await start();
      await startRun();
      const slow = await (await harness.stream(id)).untilType('session_state');
      await harness.session.step(id, call(1));
      await slow.untilType('llm_call_start');
      slow.response.pause();
      const text = 'x'.repeat(60_000);
      for (let n = 0; n < 400; n += 1) {
        harness.session.publishDelta(id, text, { offset: n * text.length });
        await new Promise((resolve) => setImmediate(resolve));
      }
      slow.response.resume();
      await harness.session.finish(id);
      await slow.untilEnd();
      expect(slow.ended).toBe('clean');
      expect(slow.types.at(-1)).toBe('stream_end');
    });

    it('are cut when they drain nothing for too long, also in a replay', async () => {
      await start({ streams: { stallMs: 200, heartbeatMs: 150 } });
      await startRun();
      await flood();
      const slow = await harness.stream(id);
      slow.response.pause();
      await until(() => harness.gateway.hub.size === 0);
      expect(await harness.registry.getSingleMetricAsString('margay_stream_cuts_total')).toContain(
        '{reason="stalled"} 1',
      );
    });
  });

  describe('refusals', () => {
    it('answers an unknown, a malformed and a foreign id alike', async () => {
      await start();
      const foreign = await harness.session.createSession('other-tenant');
      for (const unknown of ['0'.repeat(32), 'nonsense', foreign]) {
        const answer = await harness.get(`/api/sessions/${unknown}/stream`);
        expect(answer.status).toBe(404);
        expect(answer.body).toEqual({ error: { code: 404, reason: `session ${unknown} not found`, retryable: false } });
      }
      expect(harness.gateway.hub.size).toBe(0);
    });

    it('answers 401 as JSON', async () => {
      await start();
      const answer = await harness.get(`/api/sessions/${id}/stream`, { key: null });
      expect([answer.status, answer.body]).toEqual([401, { message: 'API token is not provided.' }]);
    });

    it('answers 503 with Retry-After above the limit of streams', async () => {
      await start({ streams: { maxStreams: 1 } });
      await startRun();
      await (await harness.stream(id)).untilType('session_state');
      const answer = await harness.get(`/api/sessions/${id}/stream`);
      expect(answer.status).toBe(503);
      expect(answer.headers.get('retry-after')).toBe('5');
      expect(answer.headers.get('x-margay-reason')).toBe('streams_exhausted');
      expect(answer.body).toEqual({
        error: { code: 503, reason: 'too many open streams (1); try again later', retryable: true },
      });
    });

    it('answers 503 while the log cannot be read', async () => {
      await start();
      harness.session.failures.set('readCommits', new UnavailableError('unavailable', 'the store is away'));
      const answer = await harness.get(`/api/sessions/${id}/stream`);
      expect(answer.status).toBe(503);
      expect(harness.gateway.hub.size).toBe(0);
    });
  });

  it('cuts the streams of a revoked key', async () => {
    await start();
    await startRun();
    const reader = await (await harness.stream(id)).untilType('session_state');
    harness.session.revokeKey(harness.key);
    harness.bus.deliver('margay.config.keys', '{}');
    await reader.untilEnd();
    expect(reader.ended).toBe('cut');
  });

  it('ends its streams cleanly and without stream_end on shutdown, spread over time', async () => {
    await start({ streams: { drainMs: 6_000 } });
    await startRun();
    const readers = await Promise.all([1, 2].map(() => harness.stream(id)));
    for (const reader of readers) await reader.untilType('session_state');
    const closing = harness.gateway.close();
    await Promise.race(readers.map((reader) => reader.untilEnd()));
    expect(readers.filter(({ ended }) => ended === undefined)).toHaveLength(1);
    for (const reader of readers) await reader.untilEnd();
    await closing;
    for (const { ended, types } of readers) {
      expect(ended).toBe('clean');
      expect(types).not.toContain('stream_end');
    }
  });

  it('counts open streams and measures the delay of events', async () => {
    await start();
    await startRun();
    const reader = await (await harness.stream(id)).untilType('session_state');
    await harness.session.step(id, note('measured'));
    await reader.untilType('run_note');
    expect(await harness.registry.getSingleMetricAsString('margay_streams_open')).toContain('margay_streams_open 1');
    expect(await harness.registry.getSingleMetricAsString('margay_stream_event_delay_seconds')).toMatch(/_count 1/);
    reader.close();
    await until(() => harness.gateway.hub.size === 0);
  });
});

async function until(condition: () => boolean): Promise<void> {
  const deadline = performance.now() + 60_000;
  while (!condition()) {
    if (performance.now() > deadline) throw new Error('did not come true in time');
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

/** Numbers in [0, 1), the same for the same seed. */
function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
    return state / 2_147_483_648;
  };
}
