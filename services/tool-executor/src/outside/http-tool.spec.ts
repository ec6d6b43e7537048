import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { createServer as createTcpServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { buffer } from 'node:stream/consumers';
import { HttpTool } from './http-tool';
import { HttpToolSettings, readHttpTools } from './http-tool-file';

type Handler = (request: IncomingMessage, response: ServerResponse, body: string) => void;

let folder: string;
let server: Server;
let handler: Handler;
let received: { headers: IncomingMessage['headers']; method: string | undefined; body: string }[];

beforeEach(async () => {
  folder = mkdtempSync(path.join(tmpdir(), 'margay-tools-'));
  received = [];
  handler = (_request, response) => response.end('fine');
  server = createServer((request, response) => {
    void buffer(request).then((bytes) => {
      const body = bytes.toString('utf8');
      received.push({ headers: request.headers, method: request.method, body });
      handler(request, response, body);
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
});
afterEach(async () => {
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
  rmSync(folder, { recursive: true });
});

const addressOf = (): string => `http://127.0.0.1:${(server.address() as AddressInfo).port}/send`;

function toolWith(more: Partial<Record<keyof HttpToolSettings, unknown>> = {}): HttpTool {
  const base = {
    name: 'send',
    description: 'Sends.',
    parameters: { type: 'object' },
    url: addressOf(),
    effect: 'keyed',
  };
  return new HttpTool(HttpToolSettings.parse({ ...base, ...more }));
}

const attempt = (tool: HttpTool, signal: AbortSignal = new AbortController().signal) =>
  tool.attempt({ callId: 's1.1.1.0', tenantId: 't1', argsJson: '{"to":"ada"}', signal });

function secretFile(text: string): string {
  const file = path.join(folder, 'secret');
  writeFileSync(file, `${text}\n`);
  return file;
}

describe('an HTTP tool', () => {
  it('sends the arguments with the call id as key, and gives the answer', async () => {
    expect(await attempt(toolWith())).toEqual({ kind: 'answered', status: 'ok', result: 'fine' });
    const [request] = received;
    expect(request).toMatchObject({ method: 'POST', body: '{"to":"ada"}' });
    expect(request?.headers).toMatchObject({ 'idempotency-key': 's1.1.1.0', 'content-type': 'application/json' });
  });

  it('reads JSON where the answer is, and text otherwise', async () => {
    handler = (_request, response) => response.setHeader('content-type', 'application/json').end('{"id":7}');
    expect(await attempt(toolWith())).toMatchObject({ result: { id: 7 } });
    handler = (_request, response) => response.setHeader('content-type', 'application/json').end('{"id":');
    expect(await attempt(toolWith())).toMatchObject({ status: 'ok', result: '{"id":' });
  });

  it('makes other statuses errors, and follows no redirect', async () => {
    handler = (_request, response) => response.writeHead(422).end('no such person');
    expect(await attempt(toolWith())).toMatchObject({
      status: 'error',
      result: 'the server answered 422: no such person',
      isPassing: false,
    });
    handler = (_request, response) => response.writeHead(302, { location: addressOf() }).end();
    expect(await attempt(toolWith())).toMatchObject({
      status: 'error',
      result: 'the server answered 302 (redirects are not followed)',
    });
    handler = (_request, response) => response.writeHead(503).end();
    expect(await attempt(toolWith())).toMatchObject({ status: 'error', isPassing: true });
    expect(received).toHaveLength(3);
  });

  it('bounds what it reads of an answer', async () => {
    handler = (_request, response) => response.end('x'.repeat(3 * 1024 * 1024));
    const end = await attempt(toolWith());
    expect(end).toMatchObject({ kind: 'answered', status: 'ok' });
    const text = String((end as { result: unknown }).result);
    expect(text.length).toBeLessThan(263_000);
    expect(text).toMatch(/\[the answer was cut after 262144 bytes\]$/);
  });

  it('sends secrets from files, and never shows them', async () => {
    const secret = 'sk-"quoted"-and-long';
    const headers = { Authorization: { file: secretFile(secret), prefix: 'Bearer ' }, 'X-Plain': 'visible' };
    handler = (request, response) =>
      response.end(
        `${request.headers.authorization} ${JSON.stringify({ echo: secret })} ${request.headers['x-plain']}`,
      );
    expect(await attempt(toolWith({ headers }))).toEqual({
      kind: 'answered',
      status: 'ok',
      result: 'Bearer [secret] {"echo":"[secret]"} visible',
    });
    expect(received[0]?.headers.authorization).toBe(`Bearer ${secret}`);
    handler = (request, response) => response.writeHead(500).end(request.headers.authorization);
    expect(await attempt(toolWith({ headers }))).toMatchObject({ result: 'the server answered 500: Bearer [secret]' });
    // A cut answer may end within one.
    handler = (_request, response) => response.end('x'.repeat(256 * 1024 - 5) + secret);
    expect(JSON.stringify(await attempt(toolWith({ headers })))).not.toContain('sk-');
  });

  it('shows no secret that a server spells in another way', async () => {
    const secret = 'sk/long+text-of-a-key';
    const headers = { Authorization: { file: secretFile(secret) } };
    const inUnicode = [...secret].map((char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`).join('');
    for (const spelt of [secret, secret.replaceAll('/', '\\/'), inUnicode])
      for (const type of ['application/json', 'text/plain']) {
        if (type === 'text/plain' && spelt === inUnicode) continue; // no text holds it
        handler = (_request, response) =>
          response.setHeader('content-type', type).end(`{"a":["${spelt}"],"${spelt}":1}`);
        const end = await attempt(toolWith({ headers }));
        const expected = { a: ['[secret]'], '[secret]': 1 };
        expect(end).toMatchObject({ result: type === 'text/plain' ? JSON.stringify(expected) : expected });
      }
  });

  it('does not take what a proxy says of a silent server for an answer of that server', async () => {
    for (const [status, isInDoubt] of [
      [502, true],
      [503, false],
      [504, true],
      [500, false],
    ] as const) {
      handler = (_request, response) => response.writeHead(status).end();
      expect(await attempt(toolWith())).toMatchObject({ status: 'error', isInDoubt });
    }
  });

  it.each([
    ['switches to another protocol', 'HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n'],
    ['sends endless headers', `HTTP/1.1 200 OK\r\n${'X-Long: x\r\n'.repeat(10_000)}`],
    ['sends no HTTP', 'nonsense\r\n\r\n'],
  ])('counts a call as lost where the server %s', async (_name, bytes) => {
    const raw = createTcpServer(
      (socket) =>
        void socket
          .on('error', () => undefined)
          .resume()
          .end(bytes),
    );
    raw.listen(0, '127.0.0.1');
    await once(raw, 'listening');
    const url = `http://127.0.0.1:${(raw.address() as AddressInfo).port}/`;
    expect(await attempt(toolWith({ url }))).toMatchObject({ kind: 'lost' });
    await new Promise((resolve) => raw.close(resolve));
  });

  it('ends with its time where the server drips its answer', async () => {
    const dripping: NodeJS.Timeout[] = [];
    handler = (_request, response) => void dripping.push(setInterval(() => response.write('x'), 5));
    const stop = new AbortController();
    const ending = attempt(toolWith(), stop.signal);
    while (received.length === 0) await new Promise((resolve) => setImmediate(resolve));
    stop.abort(new Error('too late'));
    expect(await ending).toMatchObject({ kind: 'lost' });
    for (const timer of dripping) clearInterval(timer);
  });

  it('sends a call id that is no header value to nobody', async () => {
    const signal = new AbortController().signal;
    const end = await toolWith().attempt({ callId: 's1.1\r\nX-Other: y', tenantId: 't1', argsJson: '{}', signal });
    expect(end).toMatchObject({ kind: 'not_sent' });
    expect(received).toEqual([]);
  });

  it('sends nothing where a secret cannot be read', async () => {
    const end = await attempt(toolWith({ headers: { Authorization: { file: path.join(folder, 'absent') } } }));
    expect(end).toEqual({ kind: 'not_sent', error: 'a secret that the tool needs cannot be read; tell the operator' });
    expect(received).toEqual([]);
  });

  it('knows whether anything was sent when no answer came', async () => {
    handler = (_request, response) => response.destroy();
    expect(await attempt(toolWith())).toMatchObject({ kind: 'lost' });
    handler = (_request, response) => {
      response.writeHead(200, { 'content-length': '100' });
      response.write('half', () => response.destroy());
    };
    expect(await attempt(toolWith())).toMatchObject({ kind: 'lost' });
    const tool = toolWith();
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
    const end = await attempt(tool);
    expect(end).toEqual({ kind: 'not_sent', error: 'the server could not be reached (ECONNREFUSED)' });
    server.listen(0);
    await once(server, 'listening');
  });

  it('ends at once when it is told to', async () => {
    handler = () => undefined;
    const stop = new AbortController();
    const ending = attempt(toolWith(), stop.signal);
    while (received.length === 0) await new Promise((resolve) => setImmediate(resolve));
    stop.abort(new Error('enough'));
    expect(await ending).toMatchObject({ kind: 'lost' });
    expect(await attempt(toolWith(), AbortSignal.abort(new Error('enough')))).toMatchObject({ kind: 'not_sent' });
  });

  it('is described as a tool outside the sandbox that takes its own time', () => {
    const { descriptor } = toolWith({ timeout_seconds: 30, effect: 'unkeyed' });
    expect(descriptor).toMatchObject({
      tool_id: 'send',
      placement: 'outside',
      effect: 'unkeyed',
      operation: 'set',
      timeout: 35,
      scope: 'operator',
    });
  });
});

describe('readHttpTools', () => {
  const tool = {
    name: 'a',
    description: 'A.',
    parameters: { type: 'object' },
    url: 'http://127.0.0.1/',
    effect: 'pure',
  };
  const read = (content: unknown, taken: string[] = []) => {
    const file = path.join(folder, 'tools.json');
    writeFileSync(file, typeof content === 'string' ? content : JSON.stringify(content));
    return readHttpTools(file, new Set(taken));
  };

  it('fills in what may be left out', () => {
    expect(read([tool])).toMatchObject([
      { method: 'POST', headers: {}, timeout_seconds: 60, interrupt_behavior: 'block' },
    ]);
  });

  it.each([
    ['not JSON', '[{', /it is not JSON/],
    ['an unknown effect', [{ ...tool, effect: 'sometimes' }], /0\.effect/],
    ['a field that does not exist', [{ ...tool, retries: 3 }], /retries/],
    ['no object as arguments', [{ ...tool, parameters: { type: 'string' } }], /0\.parameters\.type/],
    ['more than ten minutes', [{ ...tool, timeout_seconds: 601 }], /0\.timeout_seconds/],
    ['another protocol', [{ ...tool, url: 'file:///etc/passwd' }], /0\.url/],
    ['a password in the URL', [{ ...tool, url: 'http://ada:hunter2@127.0.0.1/' }], /0\.url/],
    ['a header that Margay sets', [{ ...tool, headers: { 'Idempotency-Key': 'x' } }], /is set by Margay/],
    ['a line break in a header', [{ ...tool, headers: { A: 'x\r\nB: y' } }], /0\.headers\.A/],
    ['a header twice', [{ ...tool, headers: { 'X-Key': 'a', 'x-key': 'b' } }], /0\.headers\.X-Key: stands there twice/],
    ['a name twice', [tool, tool], /the name a is taken/],
  ])('refuses %s, and quotes nothing', (_name, content, message) => {
    expect(() => read(content)).toThrow(message);
    expect(() => read(content)).not.toThrow(/hunter2/);
  });

  it('refuses the name of a built-in tool, and a file that is not there', () => {
    expect(() => read([tool], ['a'])).toThrow(/is taken by another tool/);
    expect(() => readHttpTools(path.join(folder, 'absent.json'), new Set())).toThrow(/cannot be read \(ENOENT\)/);
  });
});
