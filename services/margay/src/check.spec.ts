import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { check, parseCheck } from './check';

let server: Server;
let url: string;
let asked: string[];
let lines: string[];
let healthStatus: number;
let sessionStatus: number;

beforeEach(async () => {
  [asked, lines, healthStatus, sessionStatus] = [[], [], 200, 200];
  server = createServer((request, response) => {
    asked.push(`${request.method} ${request.url} ${request.headers['x-api-key'] ?? '-'}`);
    const [status, body] = answerTo(request.url ?? '');
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterEach(() => {
  server.closeAllConnections();
  return new Promise((resolve) => server.close(resolve));
});

function answerTo(path: string): [number, object] {
  if (path === '/healthz') return [healthStatus, { status: 'ok' }];
  if (path === '/api/sessions' && sessionStatus !== 200) return [sessionStatus, { message: 'no' }];
  if (path === '/api/sessions') return [200, { session_id: 'ab12' }];
  return [200, { session_id: 'ab12', terminated: true }];
}

const run = (apiKey?: string, reachMs = 0) =>
  check({ url, ...(apiKey && { apiKey }), write: (line) => lines.push(line), reachMs });

describe('the command check', () => {
  it('makes a session and ends it', async () => {
    await run('mk_key');
    expect(asked).toEqual(['GET /healthz -', 'POST /api/sessions mk_key', 'POST /api/sessions/ab12/terminate mk_key']);
    expect(lines.at(-1)).toBe('session ab12 ended');
  });

  it('looks at health alone without a key, and says so', async () => {
    await run();
    expect(asked).toHaveLength(1);
    expect(lines.at(-1)).toContain('no key');
  });

  it('looks at health alone with a key that has expired, and says so; anything else fails', async () => {
    sessionStatus = 401;
    await run('mk_key');
    expect(lines.at(-1)).toBe('the key holds no longer: no session was made');
    sessionStatus = 403;
    await expect(run('mk_key')).rejects.toThrow();
  });

  it('fails where the gateway is not healthy or not there', async () => {
    healthStatus = 503;
    await expect(run('mk_key')).rejects.toThrow(/answered 503/);
    await new Promise((resolve) => server.close(resolve).closeAllConnections());
    await expect(run('mk_key')).rejects.toMatchObject({ reason: 'gateway_unhealthy' });
    expect(asked).toHaveLength(1);
  });

  it('waits for a gateway that it is not let through to yet', async () => {
    const { port } = server.address() as AddressInfo;
    await new Promise((resolve) => server.close(resolve).closeAllConnections());
    const checked = run('mk_key', 60_000);
    await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
    await checked;
    expect(lines.at(-1)).toBe('session ab12 ended');
  });

  it.each([[[]], [['--url']], [['--url', 'gateway']], [['--uri', 'http://g']], [['http://g']]])(
    'refuses %j',
    (argv) => {
      expect(() => parseCheck(argv)).toThrow(/Usage: margay.cjs check/);
    },
  );
});
