import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, type RequestListener, type Server } from 'node:http';
import { createServer as createHttpsServer } from 'node:https';
import { connect, type AddressInfo, type Server as NetServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { getCACertificates, setDefaultCACertificates } from 'node:tls';
import { generateKeys, KeyRing } from '@margay/platform';
import { certify, newKeyPair } from '@margay/platform/certificates';
import { egressTunnels } from './egress-tunnels';
import { HttpTool } from './http-tool';
import { HttpToolSettings } from './http-tool-file';

const DAY_MS = 86_400_000;
let folder: string;
let keys: KeyRing;
let verifier: KeyRing;
let proxy: Server;
/** Whom tunnels were opened for, and whereto. */
let opened: string[];
/** How the proxy answers instead of opening. */
let refusals: string[];
let webPort: number;
let servers: NetServer[] = [];
let sockets: Socket[] = [];

beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'margay-tunnels-'));
  await generateKeys(folder, ['egress', 'tool-executor']);
  [keys, verifier] = [await KeyRing.load(folder, 'tool-executor'), await KeyRing.load(folder, 'egress')];
});
afterAll(() => rm(folder, { recursive: true }));
beforeEach(async () => {
  [opened, refusals] = [[], []];
  webPort = await serve(createServer(answerWeb));
  proxy = createServer();
  proxy.on('connect', (request, client: Socket) => void openFor(request.url, request.headers, client));
  await serve(proxy);
});
afterEach(async () => {
  for (const socket of sockets) socket.destroy();
  for (const server of servers) await new Promise((resolve) => server.close(resolve));
  [servers, sockets] = [[], []];
});

const answerWeb: RequestListener = (request, response) => response.end(`${request.method} ${request.headers.host}`);

async function serve(server: NetServer): Promise<number> {
  server.on('connection', (socket: Socket) => sockets.push(socket));
  servers.push(server);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
}

async function openFor(authority = '', headers: Record<string, unknown>, client: Socket): Promise<void> {
  client.on('error', () => undefined);
  const refusal = refusals.shift();
  if (refusal !== undefined) return void client.end(refusal);
  const token = String(headers['proxy-authorization']).replace(/^Bearer /, '');
  const { principal, tenantId } = await verifier.verifyPrincipal(token, 'egress');
  opened.push(`${principal} ${tenantId} ${authority}`);
  const upstream = connect(webPort, '127.0.0.1');
  sockets.push(upstream.on('error', () => undefined));
  client.write('HTTP/1.1 200 Connection established\r\n\r\n');
  client.pipe(upstream).pipe(client);
}

function attempt(
  url: string,
  address = `127.0.0.1:${(proxy.address() as AddressInfo).port}`,
  signal = new AbortController().signal,
) {
  // prettier-ignore
  const settings = HttpToolSettings.parse({ name: 'send', description: 'Sends.', parameters: { type: 'object' }, url, effect: 'keyed' }); // prettier-ignore
  const tool = new HttpTool(settings, egressTunnels(address, keys));
  return tool.attempt({ callId: 's1.1.1.0', tenantId: 't1', argsJson: '{}', signal });
}

describe('calls that go out by the egress proxy', () => {
  it('name the host to it, and the tenant for whom they are', async () => {
    expect(await attempt('http://mail.example/send')).toMatchObject({ status: 'ok', result: 'POST mail.example' });
    expect(await attempt('http://mail.example:8025/send')).toMatchObject({ result: 'POST mail.example:8025' });
    expect(opened).toEqual(['system:tool-executor t1 mail.example:80', 'system:tool-executor t1 mail.example:8025']);
  });

  it('speak TLS with the host itself, and send nothing to one that is not believed', async () => {
    const { privateKey, publicKey } = newKeyPair();
    const authority = newKeyPair();
    const issuer = { subject: 'spec', keys: authority };
    const lifetime = { notBeforeMs: Date.now() - DAY_MS, notAfterMs: Date.now() + DAY_MS };
    const use = { kind: 'peer' as const, names: ['mail.example'] };
    const cert = certify({ subject: 'mail', publicKey, issuer, ...lifetime, use });
    const ca = certify({ subject: 'spec', publicKey: authority.publicKey, issuer, ...lifetime, use: { kind: 'authority' } }); // prettier-ignore
    const key = privateKey.export({ type: 'pkcs8', format: 'pem' });
    webPort = await serve(createHttpsServer({ cert, key }, answerWeb));
    expect(await attempt('https://mail.example/send')).toMatchObject({ kind: 'not_sent' });
    const usual = getCACertificates('default');
    setDefaultCACertificates([...usual, ca]);
    try {
      expect(await attempt('https://mail.example/send')).toMatchObject({ status: 'ok', result: 'POST mail.example' });
      expect(await attempt('https://other.example/send')).toMatchObject({ kind: 'not_sent' });
    } finally {
      setDefaultCACertificates(usual);
    }
    expect(opened.at(-1)).toBe('system:tool-executor t1 other.example:443');
  });

  it('have sent nothing where the proxy refuses, and say why', async () => {
    refusals = ['HTTP/1.1 502 Bad Gateway\r\nX-Margay-Egress: egress_address\r\n\r\n'];
    expect(await attempt('http://mail.example/send')).toEqual({
      kind: 'not_sent',
      error: 'the server could not be reached (egress_address)',
    });
  });

  it('try again while a replica of the proxy is replaced, and not for ever', async () => {
    refusals = ['', 'HTTP/1.1 503 Unavailable\r\nX-Margay-Egress: egress_unavailable\r\n\r\n'];
    expect(await attempt('http://mail.example/send')).toMatchObject({ status: 'ok' });
    const nobody = await serve(createServer());
    await new Promise((resolve) => servers.pop()?.close(resolve));
    expect(await attempt('http://mail.example/send', `127.0.0.1:${nobody}`)).toEqual({
      kind: 'not_sent',
      error: 'the server could not be reached (egress_unavailable)',
    });
  });

  it('end when they are to end, also before there is a tunnel', async () => {
    proxy.removeAllListeners('connect');
    const taken = once(proxy, 'connect');
    const stop = new AbortController();
    const ending = attempt('http://mail.example/send', undefined, stop.signal);
    await taken;
    stop.abort(new Error('enough'));
    expect(await ending).toMatchObject({ kind: 'not_sent' });
  });

  it('are lost, not unsent, where the tunnel breaks after the request was sent', async () => {
    webPort = await serve(createServer((request) => request.socket.destroy()));
    expect(await attempt('http://mail.example/send')).toMatchObject({ kind: 'lost' });
  });
});
