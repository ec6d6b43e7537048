import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import { statSync } from 'node:fs';
import { connect as connectRaw, type Socket } from 'node:net';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import { connect as connectTls, createServer as createTlsServer } from 'node:tls';
import { EgressFixture } from './egress-fixture';

const KEY = Buffer.from('0123456789abcdef0123456789abcdef', 'hex');
/** TLS by a shared key needs no certificate. */
const PSK = { ciphers: 'PSK', maxVersion: 'TLSv1.2' as const };

let fixture: EgressFixture;
let port: number;
let seen: { method?: string; url?: string; headers: NodeJS.Dict<string | string[]>; body: string }[];

beforeEach(() => {
  fixture = new EgressFixture();
  seen = [];
});
afterEach(() => fixture.remove());

function webServer(): Server {
  return createServer((request, response) => {
    void text(request).then((body) => {
      seen.push({ method: request.method, url: request.url, headers: request.headers, body });
      if (request.url === '/redirect') return response.writeHead(302, { Location: 'http://inner.example/' }).end();
      if (request.url === '/silent') return undefined;
      if (request.url === '/long') return response.end('x'.repeat(10_000));
      if (request.url === '/endless') return response.write('x'.repeat(10_000));
      return response.writeHead(200, { 'X-Margay-Egress': 'forged', 'Set-Cookie': ['a=1', 'b=2'] }).end('hello');
    });
  });
}

/** The operator lets the names lead to this machine. */
function settings(rules: object[] = [], limits: object = {}) {
  const own = { id: 'web', hosts: ['web.example'], ports: [port, 80] };
  return {
    private: [{ host: 'web.example', cidr: '127.0.0.0/8', ports: [port] }],
    policy: { rules: [...rules, own], limits },
  };
}

async function startWeb(rules: object[] = [], limits: object = {}): Promise<void> {
  port = await fixture.serve(webServer());
  fixture.names.set('web.example', ['127.0.0.1']);
  await fixture.start(settings(rules, limits));
}

describe('requests in the clear', () => {
  it('go to the host that was judged, with the headers that are for it', async () => {
    await startWeb();
    const headers = { 'Proxy-Authorization': 'Basic c2VjcmV0', 'X-Mine': '1', 'Content-Length': '3' };
    const answer = await fixture.get(`http://web.example:${port}/a?b=c`, { method: 'POST', headers, body: 'abc' });
    expect(answer).toMatchObject({ status: 200, body: 'hello' });
    expect(answer.headers['x-margay-egress']).toBeUndefined();
    expect(answer.headers['set-cookie']).toEqual(['a=1', 'b=2']);
    expect(seen).toEqual([{ method: 'POST', url: '/a?b=c', body: 'abc', headers: expect.any(Object) as object }]);
    expect(seen[0]?.headers).toMatchObject({ host: `web.example:${port}`, 'x-mine': '1' });
    expect(seen[0]?.headers['proxy-authorization']).toBeUndefined();
  });

  it.each([
    ['a host without a rule', 'http://other.example/', 403, 'egress_denied'],
    ['an address', 'http://127.0.0.1/', 403, 'egress_denied'],
    ['a decimal address', 'http://2130706433/', 403, 'egress_denied'],
    ['an octal address', 'http://0177.0.0.1/', 403, 'egress_denied'],
    ['a mapped address', 'http://[::ffff:127.0.0.1]/', 403, 'egress_denied'],
    ['the metadata service', 'http://169.254.169.254/latest', 403, 'egress_denied'],
    ['an address in a disguise', 'http://web.example@127.0.0.1/', 403, 'egress_denied'],
    ['no host', '/latest', 403, 'egress_denied'],
    ['encryption without a tunnel', 'https://web.example/', 403, 'egress_denied'],
    ['a name without an address', 'http://missing.example/', 502, 'egress_resolve'],
    ['a name that stands for this machine', 'http://inner.example/', 502, 'egress_address'],
    ['a name of which one address is private', 'http://mixed.example/', 502, 'egress_address'],
    ['another port of an exception', 'http://web.example/', 502, 'egress_address'],
  ])('never reach %s', async (_, url, status, code) => {
    const hosts = ['missing.example', 'inner.example', 'mixed.example'];
    await startWeb([{ id: 'more', hosts, ports: [80] }]);
    fixture.names.set('inner.example', ['127.0.0.1']);
    fixture.names.set('mixed.example', ['1.1.1.1', '::ffff:127.0.0.1']);
    const answer = await fixture.get(url);
    expect(answer).toMatchObject({ status, headers: { 'x-margay-egress': code } });
    expect(seen).toEqual([]);
  });

  it('reach what the operator excepted by a rule only, not because everything public is allowed', async () => {
    port = await fixture.serve(webServer());
    fixture.names.set('web.example', ['127.0.0.1']);
    const excepted = [{ host: 'web.example', cidr: '127.0.0.0/8', ports: [port, 80] }];
    await fixture.start({ maxMode: 'public', private: excepted, policy: { mode: 'public' } });
    const refused = { status: 502, headers: { 'x-margay-egress': 'egress_address' } };
    expect(await fixture.get('http://web.example/')).toMatchObject(refused);
    const { head } = await fixture.tunnel(`web.example:${port}`);
    expect(head).toMatch(/^HTTP\/1.1 502 .*X-Margay-Egress: egress_address/s);
  });

  it('say when a host takes no connection', async () => {
    await startWeb();
    const free = await fixture.serveTcp((socket) => socket.destroy());
    const exception = { host: 'web.example', cidr: '127.0.0.0/8', ports: [free] };
    fixture.setPolicy({
      private: [exception],
      policy: { rules: [{ id: 'x', hosts: ['web.example'], ports: [free] }] },
    });
    await untilAllowed(`http://web.example:${free}/`);
    const answer = await fixture.get(`http://web.example:${free}/`);
    expect(answer).toMatchObject({ status: 502, headers: { 'x-margay-egress': 'egress_connect' } });
    expect(await fixture.metrics()).toMatch(/decision="failed",reason="egress_connect"\} \d/);
  });

  it('resolve a name once, so that one which changes its mind gains nothing', async () => {
    await startWeb();
    await fixture.get(`http://web.example:${port}/`);
    expect(fixture.lookups).toEqual(['web.example']);
  });

  it('judge a redirect anew, since the client follows it', async () => {
    await startWeb([{ id: 'inner', hosts: ['inner.example'], ports: [80] }]);
    fixture.names.set('inner.example', ['127.0.0.1']);
    const { status, headers } = await fixture.get(`http://web.example:${port}/redirect`);
    expect(status).toBe(302);
    expect(await fixture.get(String(headers.location))).toMatchObject({ status: 502 });
  });

  it('are answered when the host changes to another protocol, which nobody asked for', async () => {
    port = await fixture.serveTcp((socket) => {
      socket.once('data', () =>
        socket.write('HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nhello'),
      );
    });
    fixture.names.set('web.example', ['127.0.0.1']);
    await fixture.start(settings());
    const answer = await fixture.get(`http://web.example:${port}/`, {
      headers: { Upgrade: 'x', Connection: 'upgrade' },
    });
    expect(answer).toMatchObject({ status: 502, headers: { 'x-margay-egress': 'egress_connect' } });
  });

  it('carry nothing by which servers go instead of what was judged', async () => {
    await startWeb();
    const names = ['X-HTTP-Method-Override', 'X-Original-URL', 'X-Rewrite-URL', 'X-Forwarded-Host', 'Forwarded'];
    await fixture.get(`http://web.example:${port}/a`, {
      headers: Object.fromEntries(names.map((name) => [name, 'x'])),
    });
    for (const name of names) expect(seen[0]?.headers).not.toHaveProperty(name.toLowerCase());
  });

  it('cannot smuggle a second one', async () => {
    await startWeb();
    const smuggled = `GET http://web.example:${port}/smuggled HTTP/1.1\r\nHost: x\r\n\r\n`;
    for (const framing of [
      'Content-Length: 5\r\nTransfer-Encoding: chunked',
      'Transfer-Encoding: xchunked',
      'Content-Length: 5\r\nContent-Length: 6',
    ]) {
      const socket = fixture.connect();
      socket.write(`POST http://web.example:${port}/ HTTP/1.1\r\nHost: x\r\n${framing}\r\n\r\n0\r\n\r\n${smuggled}`);
      expect(await text(socket)).toMatch(/^HTTP\/1.1 400 /);
    }
    expect(seen.filter(({ url }) => url === '/smuggled')).toEqual([]);
  });

  it('are cut by the limits: per answer, when idle', async () => {
    await startWeb([], { responseBytes: 5_000, idleSeconds: 1 });
    const long = await fixture.get(`http://web.example:${port}/long`);
    expect(long).toMatchObject({ status: 429, headers: { 'x-margay-egress': 'egress_limit' } });
    await expect(fixture.get(`http://web.example:${port}/endless`)).rejects.toThrow(/aborted|hang up/);
    const silent = await fixture.get(`http://web.example:${port}/silent`);
    expect(silent).toMatchObject({ status: 504, headers: { 'x-margay-egress': 'egress_timeout' } });
  });

  it('are no more at once than a sandbox may have', async () => {
    await startWeb([], { perSandbox: 1 });
    const silent = fixture.get(`http://web.example:${port}/silent`).catch((error: Error) => error.message);
    await until(() => seen.some(({ url }) => url === '/silent'));
    const second = await fixture.get(`http://web.example:${port}/`);
    expect(second).toMatchObject({ status: 429, headers: { 'x-margay-egress': 'egress_limit' } });
    await fixture.stop();
    expect(await silent).toMatch(/hang up|ECONNRESET/);
  });

  it('are refused beyond the rate of the tenant', async () => {
    await startWeb([], { requestsPerSecond: 2 });
    const answers = await Promise.all(Array.from({ length: 60 }, () => fixture.get('http://other.example/')));
    const statuses = answers.map(({ status }) => status);
    expect(statuses).toContain(403);
    expect(statuses).toContain(429);
  });
});

describe('tunnels', () => {
  const authority = () => `web.example:${port}`;

  async function startTls(limits: object = {}): Promise<void> {
    const server = createTlsServer({ ...PSK, pskCallback: () => KEY }, (socket) => {
      socket.on('error', () => undefined);
      socket.on('data', (chunk) => socket.write(`echo ${chunk.toString()}`));
      socket.on('end', () => socket.end());
    });
    port = await fixture.serve(server);
    fixture.names.set('web.example', ['127.0.0.1']);
    await fixture.start(settings([], limits));
  }

  function speakTls(socket: Socket, servername: string) {
    const pskCallback = () => ({ psk: KEY, identity: 'x' });
    return connectTls({ ...PSK, socket, servername, pskCallback, checkServerIdentity: () => undefined });
  }

  it('carry TLS to the host that they were opened to', async () => {
    await startTls();
    const { head, socket } = await fixture.tunnel(authority());
    expect(head).toMatch(/^HTTP\/1.1 200 /);
    const secure = speakTls(socket, 'web.example');
    secure.write('hello');
    expect(String((await once(secure, 'data'))[0])).toBe('echo hello');
    secure.end();
    await once(secure, 'close');
    await fixture.stop();
    expect(fixture.audit).toEqual([
      expect.objectContaining({ decision: 'allowed', rule: 'web', status: 200, count: 1 }),
    ]);
  });

  it.each(['other.example', ''])(
    'are cut when TLS names %j instead, before the host hears a byte',
    async (servername) => {
      let heard = 0;
      port = await fixture.serveTcp((socket) => socket.on('data', (chunk) => (heard += chunk.length)));
      fixture.names.set('web.example', ['127.0.0.1']);
      await fixture.start(settings());
      const { socket } = await fixture.tunnel(authority());
      const secure = speakTls(socket, servername);
      const [error] = (await once(secure, 'error')) as [Error];
      expect(error.message).toMatch(/unrecognized name|disconnected/i);
      expect(heard).toBe(0);
      await until(() => fixture.audit.length > 0);
      expect(fixture.audit).toMatchObject([{ decision: 'denied', reason: 'egress_denied', host: 'web.example' }]);
    },
  );

  it('are cut when anything but TLS is spoken', async () => {
    let heard = 0;
    port = await fixture.serveTcp((socket) => socket.on('data', (chunk) => (heard += chunk.length)));
    fixture.names.set('web.example', ['127.0.0.1']);
    await fixture.start(settings());
    for (const words of ['SSH-2.0-client\r\n', `GET http://web.example:${port}/ HTTP/1.1\r\n\r\n`]) {
      const { socket } = await fixture.tunnel(authority());
      socket.write(words);
      await once(socket, 'end');
    }
    expect(heard).toBe(0);
  });

  it.each([
    ['other.example:443', 403, 'egress_denied'],
    ['127.0.0.1:443', 403, 'egress_denied'],
    ['[::1]:443', 403, 'egress_denied'],
    ['web.example', 403, 'egress_denied'],
    ['web.example:0', 403, 'egress_denied'],
    ['web.example:80', 502, 'egress_address'],
  ])('are not opened to %s', async (target, status, code) => {
    await startTls();
    const { head, socket } = await fixture.tunnel(target);
    expect(head).toMatch(new RegExp(`^HTTP/1.1 ${status} .*X-Margay-Egress: ${code}\r\n`, 's'));
    socket.destroy();
  });

  it('are not opened where the rule needs requests that can be read', async () => {
    port = await fixture.serve(webServer());
    fixture.names.set('web.example', ['127.0.0.1']);
    await fixture.start(
      settings([{ id: 'git', hosts: ['web.example'], ports: [port], intercept: true, paths: ['/team/**'] }]),
    );
    const { head } = await fixture.tunnel(authority());
    expect(head).toContain('its rule needs requests that can be read');
    expect(await fixture.get(`http://web.example:${port}/team/x`)).toMatchObject({ status: 200 });
  });

  it('end within seconds when the policy no longer allows them', async () => {
    await startTls();
    const { socket } = await fixture.tunnel(authority());
    const secure = speakTls(socket, 'web.example');
    secure.on('error', () => undefined);
    await once(secure, 'secureConnect');
    const ended = once(secure.resume(), 'end');
    fixture.setPolicy({ policy: { mode: 'none' } });
    await ended;
    await until(() => fixture.audit.length > 0);
    expect(fixture.audit).toMatchObject([{ decision: 'denied', reason: 'egress_denied' }]);
  });
});

describe('the service', () => {
  it('takes only connections that say for whom they are', async () => {
    await startWeb();
    expect(statSync(path.dirname(fixture.socketFile)).mode & 0o777).toBe(0o700);
    for (const first of [
      `GET http://web.example:${port}/ HTTP/1.1\r\n\r\n`,
      '{"tenantId":"t1"}\n',
      'x'.repeat(3_000),
    ]) {
      const socket = connectRaw(fixture.socketFile);
      socket.on('error', () => undefined);
      socket.write(first);
      await once(socket, 'close');
    }
    expect(seen).toEqual([]);
  });

  it('knows tenants apart', async () => {
    await startWeb();
    fixture.setPolicy({ ...settings(), tenants: { t2: { mode: 'none' } } });
    await until(async () => {
      const caller = { tenantId: 't2', sandboxId: 'b2' };
      return (await fixture.get(`http://web.example:${port}/`, { caller })).status === 403;
    });
    expect(await fixture.get(`http://web.example:${port}/`)).toMatchObject({ status: 200 });
  });

  it('audits and counts, and keeps queries and headers to itself', async () => {
    await startWeb();
    const secret = { headers: { Authorization: 'Bearer canary-secret', 'Proxy-Authorization': 'Basic canary-secret' } };
    await fixture.get(`http://web.example:${port}/a?token=canary-secret`, secret);
    await fixture.get('http://other.example/b?token=canary-secret', secret);
    const metrics = await fixture.metrics();
    expect(metrics).toContain('margay_egress_requests_total{decision="allowed",reason="none"} 1');
    expect(metrics).toContain('margay_egress_requests_total{decision="denied",reason="egress_denied"} 1');
    expect(metrics).toContain('margay_egress_bytes_total{direction="down"} 5');
    await fixture.stop();
    expect(fixture.audit).toEqual([
      expect.objectContaining({ host: 'other.example', method: 'GET', path: '/b', why: 'no_rule', tenantId: 't1' }),
      expect.objectContaining({ host: 'web.example', port, count: 1, bytesDown: 5, sessionId: 's1', rule: 'web' }),
    ]);
    expect(fixture.lines.join('')).not.toContain('canary');
  });

  it('lets open requests end when it closes, for so long', async () => {
    await startWeb();
    const silent = fixture.get(`http://web.example:${port}/silent`);
    const told = expect(silent).rejects.toThrow(/hang up|ECONNRESET/);
    await until(() => seen.length > 0);
    await fixture.stop();
    await told;
    await expect(fixture.get(`http://web.example:${port}/`)).rejects.toThrow(/ENOENT|ECONNREFUSED/);
  });
});

async function until(holds: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await holds())) await new Promise((resolve) => setTimeout(resolve, 20));
}

const untilAllowed = (url: string) => until(async () => (await fixture.get(url)).status !== 403);

describe('what the proxy itself is asked', () => {
  it('is for which hosts git accounts are added, of whoever asks', async () => {
    port = 1;
    const inject = { as: 'basic' };
    await fixture.start(
      settings([
        { id: 'git', hosts: ['git.example', '*.git.example'], intercept: true, inject },
        { id: 'code', hosts: ['code.example'], ports: [8443], intercept: true, inject },
        { id: 'other', hosts: ['other.example'], intercept: true, inject, projects: ['other'] },
        { id: 'api', hosts: ['api.example'], intercept: true, inject: { credential: 'x', as: 'bearer' } },
      ]),
    );
    const answer = await fixture.get('http://egress.margay/git-hosts');
    expect(answer).toMatchObject({ status: 200, body: 'git.example\ncode.example:8443\n' });
    expect(await fixture.get('http://egress.margay/else')).toMatchObject({ status: 403 });
    await fixture.stop();
    expect(fixture.audit).toMatchObject([{ host: 'egress.margay', path: '/else', decision: 'denied' }]);
  });
});
