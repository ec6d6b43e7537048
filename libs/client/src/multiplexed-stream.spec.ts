import type { ServerResponse } from 'node:http';
import { FakeGateway, QuickClock } from '@margay/testing';
import { MargayClient } from './margay-client';
import type { MultiplexItem } from './multiplexed-stream';

const A = 'a'.repeat(32);
const B = 'b'.repeat(32);

const event = (seq: number) =>
  JSON.stringify({
    ts: `2026-01-01T00:00:00.${String(seq).padStart(6, '0')}+00:00`,
    type: 'run_note',
    payload: {},
    seq,
  });
const state = (running: boolean) => JSON.stringify({ type: 'session_state', running, terminated: false });
const frame = (name: string, data: string) => `event: ${name}\ndata: ${data}\n\n`;

describe('many sessions over one connection', () => {
  let gateway: FakeGateway;
  let client: MargayClient;
  /** What each connection in turn is sent; `true` at the end: it stays open. */
  let connections: { text: string; isLast?: boolean }[];
  const asked: string[] = [];

  beforeEach(async () => {
    gateway = await FakeGateway.start();
    client = new MargayClient({ baseUrl: gateway.url, apiKey: gateway.apiKey, clock: new QuickClock() });
    asked.length = 0;
    gateway.interceptors.push(({ path, query }, response: ServerResponse) => {
      if (path !== '/api/stream') return false;
      asked.push(query.get('sessions') ?? '');
      const { text, isLast = false } = connections.shift() ?? { text: '' };
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write(text);
      if (!isLast) response.end();
      return true;
    });
  });
  afterEach(() => gateway.close());

  const take = async (count: number, options: Parameters<MargayClient['multiplex']>[0]) => {
    const items: MultiplexItem[] = [];
    for await (const item of client.multiplex(options)) if (items.push(item) === count) break;
    return items;
  };
  const short = (item: MultiplexItem) =>
    item.of === 'session' ? `${item.sessionId[0]} ${'seq' in item.item ? item.item.seq : item.item.type}` : item.of;

  it('gives each event once over connections, each of which goes on behind what its sessions have', async () => {
    connections = [
      { text: frame(A, event(1)) + frame(B, event(8)) + frame(A, state(true)) },
      { text: frame(B, event(8)) + frame(A, event(2)) + frame(A, state(true)) },
      { text: `retry: 5\n\n${frame(A, event(3))}${frame(A, state(false))}`, isLast: true },
    ];
    const items = await take(6, { sessions: { [A]: 0, [B]: 7 } });
    expect(items.map(short)).toEqual(['a 1', 'b 8', 'a session_state', 'a 2', 'a 3', 'a session_state']);
    expect(asked).toEqual([`${A}:0,${B}:7`, `${A}:1,${B}:8`, `${A}:2,${B}:8`]);
  });

  it('tells of a session that is refused, and asks for it no more', async () => {
    const refusal = JSON.stringify({ type: 'error', code: 'session_not_found' });
    connections = [{ text: frame(A, refusal) }, { text: frame(B, event(1)), isLast: true }];
    const items = await take(2, { sessions: { [A]: 0, [B]: 0 } });
    expect(items[0]).toEqual({ of: 'refused', sessionId: A, code: 'session_not_found' });
    expect(asked).toEqual([`${A}:0,${B}:0`, `${B}:0`]);
  });

  it('ends where every session is refused', async () => {
    const refusal = JSON.stringify({ type: 'error', code: 'session_not_found' });
    connections = [{ text: frame(A, refusal), isLast: true }];
    expect((await take(9, { sessions: { [A]: 0 } })).map(short)).toEqual(['refused']);
  });

  it('gives the feed of the user by session', async () => {
    const told = JSON.stringify({ type: 'session_state', session_id: A, running: true });
    connections = [{ text: frame('user', told), isLast: true }];
    const items = await take(1, { user: true });
    expect(items).toEqual([{ of: 'user', sessionId: A, state: { type: 'session_state', running: true } }]);
  });

  it('is refused where nothing is wanted', () => {
    expect(() => client.multiplex({})).toThrow(expect.objectContaining({ reason: 'bad_options' }));
  });
});
