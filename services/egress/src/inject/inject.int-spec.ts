import { createServer, type IncomingHttpHeaders, type ServerResponse } from 'node:http';
import { text } from 'node:stream/consumers';
import { setTimeout as delay } from 'node:timers/promises';
import { brotliCompressSync, deflateSync, gzipSync, zstdCompressSync } from 'node:zlib';
import { InterceptFixture } from '../intercept/intercept-fixture';

const SECRET = 'canary-8c1f2b';

let fixture: InterceptFixture;
let port: number;
let seen: { url?: string; headers: IncomingHttpHeaders }[];
let reply: (response: ServerResponse) => void;

beforeEach(() => {
  fixture = new InterceptFixture();
  fixture.credentials.all.set('api', { name: 'api', value: SECRET });
  seen = [];
  reply = (response) => response.writeHead(200, { 'Set-Cookie': 'session=1', 'X-Kept': '1' }).end('hello');
});
afterEach(() => fixture.remove());

const at = () => `api.example:${port}`;
const rules = (inject: object, more: object = {}) => [
  { id: 'api', hosts: ['api.example'], ports: [port], intercept: true, inject, ...more },
];
const settings = (inject: object, more: object = {}) => ({
  private: [{ host: 'api.example', cidr: '127.0.0.0/8', ports: [port] }],
  policy: { rules: rules(inject, more) },
});

async function start(inject: object = { credential: 'api', as: 'bearer' }, more: object = {}): Promise<void> {
  port = await fixture.serveHost('api.example', (request, response) => {
    void text(request).then(() => {
      seen.push({ url: request.url, headers: request.headers });
      reply(response);
    });
  });
  await fixture.start(settings(inject, more));
}

const reflection = { status: 502, headers: { 'x-margay-egress': 'egress_reflection' } };

describe('a credential that a rule adds', () => {
  it.each([
    ['bearer', { credential: 'api', as: 'bearer' }, 'authorization', `Bearer ${SECRET}`],
    ['basic', { credential: 'api', as: 'basic' }, 'authorization', `Basic ${btoa(`git:${SECRET}`)}`],
    ['header', { credential: 'api', as: 'header:X-Key' }, 'x-key', SECRET],
  ])('reaches the host as %s, instead of what the caller brought', async (_, inject, header, value) => {
    await start(inject);
    const own = {
      Authorization: 'Bearer mine',
      Cookie: 'a=mine',
      'PRIVATE-TOKEN': 'mine',
      [header]: 'mine',
      Range: 'bytes=0-3',
    };
    const answer = await fixture.ask(at(), '/a?access_token=mine&b=1', { headers: own });
    expect(answer).toMatchObject({ status: 200, body: 'hello', headers: { 'x-kept': '1' } });
    expect(answer.headers['set-cookie']).toBeUndefined();
    expect(seen).toMatchObject([{ url: '/a?b=1', headers: { [header]: value, 'accept-encoding': 'identity' } }]);
    expect(JSON.stringify(seen)).not.toContain('mine');
    expect(seen[0]?.headers.range).toBeUndefined();
    expect(fixture.credentials.queries).toEqual([
      { tenantId: 't1', sessionId: 's1', host: 'api.example', name: 'api' },
    ]);
  });

  it('goes into the query, too', async () => {
    await start({ credential: 'api', as: 'query:key' });
    await fixture.ask(at(), '/a?KEY=mine&b=1&key=mine');
    expect(seen[0]?.url).toBe(`/a?b=1&key=${SECRET}`);
    expect(seen[0]?.headers.authorization).toBeUndefined();
    await fixture.stop();
    expect(fixture.lines.join('')).not.toContain(SECRET);
  });

  it('does not come back as it was written into the query', async () => {
    fixture.credentials.all.set('api', { name: 'api', value: "canary!8c(1f)~2b'" });
    await start({ credential: 'api', as: 'query:key' });
    reply = (response) => response.writeHead(308, { Location: `https://other.example${response.req.url}` }).end();
    const answer = await fixture.ask(at(), '/a');
    expect(answer).toMatchObject(reflection);
    expect(JSON.stringify(answer)).not.toContain('2b');
  });

  it('is audited each time by its name', async () => {
    await start();
    await fixture.ask(at(), '/a?b=c');
    await fixture.ask(at(), '/b');
    const told = { host: 'api.example', rule: 'api', credential: 'api', decision: 'allowed', status: 200 };
    expect(fixture.audit).toMatchObject([
      { ...told, method: 'GET', path: '/a' },
      { ...told, path: '/b' },
    ]);
    expect(fixture.lines.join('')).not.toContain(SECRET);
  });

  it.each<[string, (response: ServerResponse) => void]>([
    ['in a header', (response) => response.writeHead(302, { Location: `/x?key=${SECRET}` }).end()],
    ['in the status', (response) => response.writeHead(200, `OK ${SECRET}`).end()],
    ['in an encoding nobody knows', (response) => response.writeHead(200, { 'Content-Encoding': 'x' }).end('y')],
  ])('does not come back %s', async (_, how) => {
    await start();
    reply = how;
    const answer = await fixture.ask(at(), '/a');
    expect(answer).toMatchObject(reflection);
    expect(JSON.stringify(answer)).not.toContain(SECRET);
    expect(fixture.audit).toMatchObject([{ decision: 'denied', reason: 'egress_reflection', credential: 'api' }]);
  });

  const body = Buffer.from(`{"authorization": "Bearer ${SECRET}"}`);
  it.each<[string, (response: ServerResponse) => void]>([
    ['in the body', (response) => response.end(body)],
    ['gzip', (response) => response.writeHead(200, { 'Content-Encoding': 'gzip' }).end(gzipSync(body))],
    ['deflate', (response) => response.writeHead(200, { 'Content-Encoding': 'deflate' }).end(deflateSync(body))],
    ['br', (response) => response.writeHead(200, { 'Content-Encoding': 'br' }).end(brotliCompressSync(body))],
    ['zstd', (response) => response.writeHead(200, { 'Content-Encoding': 'zstd' }).end(zstdCompressSync(body))],
    [
      'over chunks',
      (response) => {
        response.write(body.subarray(0, 28));
        setTimeout(() => response.end(body.subarray(28)), 50);
      },
    ],
  ])('does not come back %s', async (_, how) => {
    await start();
    reply = how;
    const socket = await fixture.speak(at());
    socket.write(`GET /a HTTP/1.1\r\nHost: ${at()}\r\n\r\n`);
    const told = await text(socket).catch(() => '');
    expect(told).not.toContain(SECRET.slice(0, 8));
    await fixture.stop();
    expect(fixture.audit).toMatchObject([{ reason: 'egress_reflection', credential: 'api' }]);
  });

  it('leaves compressed answers readable', async () => {
    await start();
    reply = (response) => response.writeHead(200, { 'Content-Encoding': 'gzip' }).end(gzipSync('hello'));
    const answer = await fixture.ask(at(), '/a');
    expect(answer).toMatchObject({ status: 200, body: 'hello' });
    expect(answer.headers['content-encoding']).toBeUndefined();
    reply = (response) => response.writeHead(200, { 'Content-Encoding': 'gzip', 'Content-Length': '9' }).end();
    expect(await fixture.ask(at(), '/a', { method: 'HEAD' })).toMatchObject({ status: 200, body: '' });
  });

  it('is needed: without it the request is refused', async () => {
    await start({ credential: 'other', as: 'bearer' });
    expect(await fixture.ask(at(), '/a')).toMatchObject({ status: 403 });
    expect(seen).toEqual([]);
    expect(fixture.audit).toMatchObject([{ decision: 'denied', why: 'credential' }]);
  });

  it('goes nowhere in the clear', async () => {
    port = await fixture.serve(createServer((_, response) => response.end('hello')));
    fixture.names.set('api.example', ['127.0.0.1']);
    await fixture.start(settings({ credential: 'api', as: 'bearer' }));
    const answer = await fixture.get(`http://${at()}/a`);
    expect(answer).toMatchObject({ status: 403, headers: { 'x-margay-egress': 'egress_denied' } });
    expect(answer.body).toContain('needs https');
    expect(fixture.credentials.queries).toEqual([]);
  });
});

describe('a git account', () => {
  it('is found by the address of the repository, and not needed for an open one', async () => {
    await start({ as: 'basic' });
    fixture.credentials.all.set('/team/site', { name: 'git/team', value: SECRET, username: 'robot' });
    await fixture.ask(at(), '/team/site.git/info/refs?service=git-upload-pack');
    await fixture.ask(at(), '/open/site.git/info/refs?service=git-upload-pack', { headers: { Authorization: 'mine' } });
    expect(seen.map(({ headers }) => headers.authorization)).toEqual([`Basic ${btoa(`robot:${SECRET}`)}`, undefined]);
  });

  it('lets nobody push, unless the rule does', async () => {
    await start({ as: 'basic' });
    const push = '/team/site.git/info/refs?service=git-receive-pack';
    const answer = await fixture.ask(at(), push);
    expect(answer).toMatchObject({ status: 403, headers: { 'x-margay-egress': 'egress_denied' } });
    expect(await fixture.ask(at(), '/team/site.git/git%2dreceive-pack', { method: 'POST' })).toMatchObject({
      status: 403,
    });
    expect(seen).toEqual([]);
    fixture.setPolicy(settings({ as: 'basic', push: true }));
    let status = 403;
    for (; status === 403; { status } = await fixture.ask(at(), push)) await delay(50);
    expect(status).toBe(200);
  });
});
