import { createServer, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { checkStream } from './check-stream';

let server: Server;
/** What a proxy makes of the stream. */
let onStream: (response: ServerResponse) => void;
const calls: string[] = [];

beforeEach(async () => {
  calls.length = 0;
  server = createServer((request, response) => {
    calls.push(`${request.method} ${request.url}`);
    if (request.url?.startsWith('/api/stream')) return onStream(response);
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify({ session_id: 'a'.repeat(32) }));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
});
afterEach(() => {
  server.closeAllConnections();
  return new Promise((resolve) => server.close(resolve));
});

async function look(watchMs: number, silentMs: number) {
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const [finding] = await checkStream({ url, apiKey: 'mk_local_example', watchMs, silentMs });
  return finding;
}

/** As the gateway does. */
function beat(response: ServerResponse, everyMs: number): NodeJS.Timeout {
  response.writeHead(200, { 'content-type': 'text/event-stream' }).write('retry: 1000\n\n');
  const timer = setInterval(() => response.write(': heartbeat\n\n'), everyMs);
  response.on('close', () => clearInterval(timer));
  return timer;
}

describe('a stream through what stands before the gateway', () => {
  it('is in order where it stays open and its heartbeats come', async () => {
    onStream = (response) => beat(response, 20);
    expect(await look(500, 30_000)).toMatchObject({ check: 'public.stream', status: 'ok' });
    expect(calls).toEqual(['POST /api/sessions', expect.stringContaining('GET /api/stream?sessions='), expect.stringContaining('/terminate')]); // prettier-ignore
  });

  it('is at fault where nothing of it comes', async () => {
    onStream = (response) => response.writeHead(200, { 'content-type': 'text/event-stream' }).flushHeaders();
    const finding = await look(60_000, 100);
    expect(finding).toMatchObject({ status: 'fault', fix: expect.stringContaining('proxy_buffering off') });
  }, 30_000);

  it('is at fault where it falls silent', async () => {
    onStream = (response) => response.writeHead(200, { 'content-type': 'text/event-stream' }).write('retry: 1000\n\n');
    const finding = await look(60_000, 100);
    expect(finding).toMatchObject({ status: 'fault', detail: expect.stringContaining('nothing came') });
  });

  it.each([
    ['ended', (response: ServerResponse) => response.end('retry: 1000\n\n')],
    ['cut off', (response: ServerResponse) => response.write('retry: 1000\n\n', () => response.destroy())],
  ])('is at fault where it is %s', async (_how, cut) => {
    onStream = (response) => void cut(response.writeHead(200, { 'content-type': 'text/event-stream' }));
    const finding = await look(60_000, 30_000);
    expect(finding).toMatchObject({ status: 'fault', fix: expect.stringContaining('proxy_read_timeout') });
  });

  it('says what is missing where there is no key', async () => {
    const [finding] = await checkStream({ url: 'http://127.0.0.1:1', apiKey: undefined });
    expect(finding).toMatchObject({ status: 'warning', fix: expect.stringContaining('MARGAY_CHECK_KEY') });
  });

  it('says so where the gateway is not reached', async () => {
    await new Promise((resolve) => server.close(resolve));
    const [finding] = await checkStream({ url: 'http://127.0.0.1:1', apiKey: 'mk_local_example', watchMs: 100 });
    expect(finding).toMatchObject({ check: 'public.reached', status: 'fault' });
  });
});
