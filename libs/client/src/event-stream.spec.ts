import { FakeGateway, QuickClock, type FakeSession } from '@margay/testing';
import { MargayClient, type ConnectionChange, type Session, type StreamItem, type StreamOptions } from './index';

let gateway: FakeGateway;
let clock: QuickClock;
let fake: FakeSession;

beforeEach(async () => {
  gateway = await FakeGateway.start();
  clock = new QuickClock();
  clock.share = 0;
  fake = gateway.addSession();
});
afterEach(() => gateway.close());

const sessionOf = (apiKey: string | (() => string) = gateway.apiKey): Session =>
  new MargayClient({ baseUrl: gateway.url, apiKey, clock }).session(fake.id);

async function collect(options: StreamOptions = {}): Promise<StreamItem[]> {
  const items: StreamItem[] = [];
  for await (const item of sessionOf().stream(options)) items.push(item);
  return items;
}

const stored = (items: StreamItem[]): string[] =>
  items.filter((item) => item.type !== 'session_state').map((item) => JSON.stringify(item));

const streamRequests = () => gateway.requests.filter((request) => request.path.endsWith('/stream'));
const until = async (isSo: () => boolean): Promise<void> => {
  while (!isSo()) await new Promise((resolve) => setImmediate(resolve));
};

describe('a stream that is cut', () => {
  const play = (): FakeSession =>
    fake.append('session', { event: 'created' }).append('user', { text: 'Grüße 🐈\n\ndata: x' });

  it.each(['destroy', 'end'] as const)(
    'gives every event once, byte for byte, wherever it was cut (%s)',
    async (how) => {
      play().begin('go');
      fake.finish('done');
      const { frames } = fake;
      const headers = { 'X-API-KEY': gateway.apiKey };
      const answer = await fetch(`${gateway.url}/api/sessions/${fake.id}/stream?ids=1`, { headers });
      const whole = (await answer.arrayBuffer()).byteLength;
      expect(whole).toBeGreaterThan(500);
      for (let afterBytes = 0; afterBytes < whole; afterBytes += 1) {
        fake.cuts.push({ afterBytes, how });
        expect([afterBytes, ...stored(await collect())]).toEqual([afterBytes, ...frames]);
      }
      expect(clock.pending).toBe(0);
    },
    60_000,
  );

  it('gives every event once over a server that numbers nothing', async () => {
    const bare = [
      '2026-08-03T10:15:42.000001+00:00',
      '2026-08-03T10:15:42.000001+00:00',
      '2026-08-03T10:15:42.000002+00:00',
    ].map((ts, index) => JSON.stringify({ ts, type: 'user', payload: { text: `${index}` } }));
    const afters: (string | null)[] = [];
    gateway.interceptors.push(({ query }, response) => {
      afters.push(query.get('after'));
      const texts = bare.filter((text) => (JSON.parse(text) as { ts: string }).ts >= (query.get('after') ?? ''));
      response.writeHead(200, { 'Content-Type': 'text/event-stream' });
      const isLast = afters.length === 4;
      const upTo = isLast ? texts : texts.slice(0, afters.length);
      response.end([...upTo, ...(isLast ? ['{"type":"stream_end"}'] : [])].map((text) => `data: ${text}\n\n`).join(''));
      return true;
    });
    expect(stored(await collect())).toEqual(bare);
    expect(afters).toEqual([
      null,
      '2026-08-03T10:15:42.000001+00:00',
      '2026-08-03T10:15:42.000001+00:00',
      '2026-08-03T10:15:42.000002+00:00',
    ]);
  });

  it('starts anew when the store was restored to another generation', async () => {
    const frame = (id: string, seq: number, text: string): string =>
      `id: ${id}\ndata: ${JSON.stringify({ ts: `2026-08-03T10:15:42.00000${seq}+00:00`, type: 'user', payload: { text }, seq })}\n\n`;
    const answers = [
      frame('1', 1, 'a') + frame('2', 2, 'lost by the restore'),
      `${frame('1.1', 1, 'a')}${frame('1.2', 2, 'b')}data: {"type":"stream_end"}\n\n`,
    ];
    gateway.interceptors.push((_request, response) => {
      response.writeHead(200, { 'Content-Type': 'text/event-stream' }).end(answers.shift());
      return true;
    });
    const items = await collect();
    expect(items.map((item) => item.type === 'user' && item.payload.text)).toEqual([
      'a',
      'lost by the restore',
      'a',
      'b',
    ]);
  });
});

describe('resuming', () => {
  it('asks for what follows the cursor', async () => {
    fake.append('user', { text: 'one' }).append('user', { text: 'two' });
    expect(stored(await collect({ after: { seq: 1, ts: '2026-08-03T10:15:42.000001+00:00' } }))).toEqual([
      fake.frames[1],
    ]);
    expect(streamRequests()[0]?.headers['last-event-id']).toBe('1');
    expect(streamRequests()[0]?.query.get('ids')).toBe('1');
  });

  it('backs off with full jitter up to 15 s and comes back at once after a clean close', async () => {
    clock.share = 0.5;
    fake.begin('go');
    for (let cut = 0; cut < 7; cut += 1) fake.cuts.push({ afterBytes: 0, how: 'destroy' });
    const changes: ConnectionChange[] = [];
    const done = collect({ onConnection: (change) => changes.push(change) });
    await until(() => clock.waits.length === 7 && fake.listeners === 1);
    fake.finish('done');
    await done;
    expect(clock.waits).toEqual([250, 500, 1000, 2000, 4000, 7500, 7500]);
    expect(changes.map(({ state }) => state).slice(-3)).toEqual(['connecting', 'open', 'closed']);

    clock.waits.length = 0;
    fake.cuts.push({ afterBytes: 5, how: 'end' }, { afterBytes: 5, how: 'end' });
    await collect();
    expect(clock.waits).toEqual([0, 500]);
  });

  it('forgets earlier losses once a connection stayed open for 30 s', async () => {
    clock.share = 0.5;
    fake.begin('go');
    for (let cut = 0; cut < 3; cut += 1) fake.cuts.push({ afterBytes: 0, how: 'destroy' });
    let state = '';
    const done = collect({ onConnection: (change) => (state = change.state) });
    await until(() => clock.waits.length === 3 && state === 'open');
    clock.advance(31_000);
    fake.cuts.push({ afterBytes: 0, how: 'destroy' });
    fake.dropStreams();
    await until(() => clock.waits.length === 5);
    await until(() => fake.listeners === 1);
    fake.finish('done');
    await done;
    expect(clock.waits).toEqual([250, 500, 1000, 250, 500]);
  });

  it('waits as long as Retry-After or a retry: line demands', async () => {
    clock.share = 0.5;
    fake.append('user', { text: 'hi' });
    const refusals = [503, 429];
    gateway.interceptors.push((_request, response) => {
      const status = refusals.shift();
      if (status) response.writeHead(status, { 'Retry-After': '3' }).end('{}');
      else if (!refusals.length && clock.waits.length === 2)
        response.writeHead(200, { 'Content-Type': 'text/event-stream' }).end('retry: 7000\n\n');
      else return false;
      return true;
    });
    await collect();
    expect(clock.waits).toEqual([3000, 3000, 7000]);
  });

  it('takes 40 s of silence for a lost connection', async () => {
    fake.begin('go');
    const done = collect();
    await until(() => fake.listeners === 1);
    await until(() => clock.pending === 1);
    clock.advance(40_000);
    await until(() => streamRequests().length === 2 && fake.listeners === 1);
    fake.finish('done');
    expect(stored(await done)).toEqual(fake.frames);
  });
});

describe('refusals', () => {
  it('renews the key once after a 401', async () => {
    fake.append('user', { text: 'hi' });
    const keys = ['old', gateway.apiKey];
    const items: StreamItem[] = [];
    for await (const item of sessionOf(() => keys.shift() ?? 'none').stream()) items.push(item);
    expect(stored(items)).toEqual(fake.frames);
    await expect(
      sessionOf(() => 'old')
        .stream()
        .next(),
    ).rejects.toMatchObject({ reason: 'unauthenticated' });
    await expect(sessionOf('old').stream().next()).rejects.toMatchObject({ code: 'UNAUTHENTICATED' });
    expect(streamRequests()).toHaveLength(5);
  });

  it('rejects for a session that is not there, without a second attempt', async () => {
    gateway.sessions.clear();
    await expect(collect()).rejects.toMatchObject({ code: 'NOT_FOUND', reason: 'session_not_found' });
    expect(streamRequests()).toHaveLength(1);
  });

  it('rejects an answer that is no event stream', async () => {
    gateway.interceptors.push((_request, response) => {
      response.writeHead(200, { 'Content-Type': 'text/html' }).end('<p>proxy</p>');
      return true;
    });
    await expect(collect()).rejects.toMatchObject({ reason: 'bad_answer' });
  });
});

describe('items', () => {
  it('hands unknown types over with their wire type, and deltas with their offsets', async () => {
    fake.begin('go');
    const items: StreamItem[] = [];
    for await (const item of sessionOf().stream()) {
      items.push(item);
      if (item.type === 'session_state' && item.running)
        fake.append('brand_new', { x: 1 }).delta('Hel', 0).delta('lo', 3).finish('Hello');
    }
    expect(items.find((item) => item.type === 'unknown')).toMatchObject({
      wire_type: 'brand_new',
      payload: { x: 1 },
      seq: 3,
    });
    const deltas = items.flatMap((item) =>
      item.type === 'agent_message_delta' ? [[item.payload.text, item.payload.offset]] : [],
    );
    expect(deltas).toEqual([
      ['Hel', 0],
      ['lo', 3],
    ]);
  });

  it('leaves deltas out on request', async () => {
    fake.begin('go');
    const types: string[] = [];
    for await (const item of sessionOf().stream({ deltas: false })) {
      types.push(item.type);
      if (item.type === 'session_state' && item.running) fake.delta('x', 0).finish('x');
    }
    expect(types).not.toContain('agent_message_delta');
    expect(streamRequests()[0]?.query.get('deltas')).toBe('0');
  });

  it('gives the state again only when it changed', async () => {
    fake.begin('go');
    fake.cuts.push({ afterBytes: 1200, how: 'destroy' });
    const done = collect();
    await until(() => fake.listeners === 1);
    fake.append('assistant', { text: 'x'.repeat(1000) });
    await until(() => streamRequests().length === 2 && fake.listeners === 1);
    fake.setState({ queue_position: 2 }).finish('done');
    const states = (await done).filter((item) => item.type === 'session_state');
    expect(states.map(({ running, queue_position }) => [running, queue_position])).toEqual([
      [true, undefined],
      [true, 2],
      [false, 2],
    ]);
  });
});

describe('leaving', () => {
  it('rejects with `aborted` in every state and leaves no socket and no timer', async () => {
    fake.begin('go');
    for (const when of ['connecting', 'open', 'lost'] as const) {
      const controller = new AbortController();
      if (when === 'lost') fake.cuts.push({ afterBytes: 0, how: 'destroy' });
      const done = collect({
        signal: controller.signal,
        onConnection: ({ state }) => state === when && controller.abort('enough'),
      });
      await expect(done).rejects.toMatchObject({ code: 'CANCELLED', reason: 'aborted', cause: 'enough' });
      await until(() => fake.listeners === 0);
      expect([when, clock.pending]).toEqual([when, 0]);
    }
  });

  it('closes the connection when the loop is left', async () => {
    fake.begin('go');
    for await (const item of sessionOf().stream()) if (item.type === 'user') break;
    await until(() => fake.listeners === 0);
    expect(clock.pending).toBe(0);
  });

  it('leaves no timer even where the body ignores the abort', async () => {
    const body = new ReadableStream({
      start: (controller) =>
        controller.enqueue(new TextEncoder().encode('data: {"ts":"1","type":"user","payload":{}}\n\n')),
    });
    const deaf = async (): Promise<Response> =>
      new Response(body, { headers: { 'Content-Type': 'text/event-stream' } });
    const margay = new MargayClient({ baseUrl: gateway.url, apiKey: 'k', clock, fetch: deaf });
    for await (const item of margay.session(fake.id).stream()) if (item.type === 'user') break;
    await new Promise((resolve) => setImmediate(resolve));
    expect(clock.pending).toBe(0);
  });

  it('follows across runs until the session is terminated', async () => {
    fake.begin('one');
    fake.finish('1');
    const texts: string[] = [];
    for await (const item of sessionOf().stream({ follow: true })) {
      if (item.type !== 'assistant') continue;
      texts.push(item.payload.text);
      if (texts.length === 1) {
        fake.begin('two');
        fake.finish('2');
      } else fake.setState({ terminated: true, status: 'terminated' });
    }
    expect(texts).toEqual(['1', '2']);
    expect(clock.waits).toContain(1000);
  });
});

it('stops reading the socket while the consumer is 256 frames behind', async () => {
  const text = 'x'.repeat(10_000);
  fake.begin('go');
  let written = 0;
  gateway.interceptors.push(async (_request, response) => {
    response.writeHead(200, { 'Content-Type': 'text/event-stream' });
    for (let seq = 1; seq <= 5000; seq += 1) {
      const frame = {
        ts: `2026-08-03T10:15:42.${String(seq).padStart(6, '0')}+00:00`,
        type: 'user',
        payload: { text },
        seq,
      };
      if (!response.write(`data: ${JSON.stringify(frame)}\n\n`))
        await new Promise((resolve) => response.once('drain', resolve));
      written = seq;
    }
    response.end('data: {"type":"stream_end"}\n\n');
    return true;
  });
  const stream = sessionOf().stream();
  await stream.next();
  let before = -1;
  while (written !== before) {
    before = written;
    await new Promise((resolve) => setTimeout(resolve, 100)); // the kernel's buffers have no event to wait for
  }
  expect(written).toBeLessThan(2500);
  let count = 1;
  for await (const item of stream) count += item.type === 'user' ? 1 : 0;
  expect(count).toBe(5000);
});
