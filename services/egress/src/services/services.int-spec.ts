import { mkdir, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { connect, type Socket } from 'node:net';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import { setTimeout as delay } from 'node:timers/promises';
import { connect as connectTls } from 'node:tls';
import { freePorts } from '@margay/launcher';
import { createLogger, generateKeys, KeyRing, ManagementServer, peerName, systemPrincipal, TlsIdentity } from '@margay/platform'; // prettier-ignore
import { certify, newKeyPair } from '@margay/platform/certificates';
import type { Principal } from '@margay/contracts';
import { EgressFixture } from '../egress-fixture';
import { startEgress } from '../start-egress';

const DAY_MS = 86_400_000;
const logger = createLogger({ level: 'off' });
let fixture: EgressFixture;
let lines: string[];
let closers: (() => Promise<unknown>)[];
let webPort: number;
let port: number;

beforeEach(async () => {
  [fixture, lines, closers] = [new EgressFixture(), [], []];
  webPort = await fixture.serve(createServer((_, response) => response.end('hello')));
  await generateKeys(`${fixture.folder}/keys`, ['egress', 'tool-executor', 'agent-runner']);
});
afterEach(async () => {
  for (const close of closers.reverse()) await close();
  await fixture.remove();
});

async function start(tls?: TlsIdentity): Promise<void> {
  // No tenant may reach anything; services may, where the operator says that an address is theirs.
  fixture.setPolicy({
    maxMode: 'none',
    private: [{ host: 'tools.example', cidr: '127.0.0.0/8', ports: [webPort] }],
  });
  const management = new ManagementServer({ listen: '127.0.0.1:0', logger });
  [port = 0] = await freePorts(1);
  const environment = {
    MARGAY_EGRESS_POLICY_FILE: fixture.policyFile,
    MARGAY_EGRESS_LOCAL_SOCKET: fixture.socketFile,
    MARGAY_EGRESS_SERVICES_LISTEN: `127.0.0.1:${port}`,
    MARGAY_KEYS_DIR: `${fixture.folder}/keys`,
    MARGAY_EGRESS_DRAIN_SECONDS: '20',
  };
  const written = createLogger({ level: 'info', write: (line) => lines.push(line) });
  const running = await startEgress(environment, { logger: written, management, tls }, { resolve: async () => ['127.0.0.1'] }); // prettier-ignore
  closers.push(
    () => management.close(),
    () => running.close(),
  );
}

async function tokenOf(service: string, more: Partial<Principal> = {}, audience = 'egress'): Promise<string> {
  const keys = await KeyRing.load(`${fixture.folder}/keys`, service);
  return `Bearer ${await keys.signPrincipal({ ...systemPrincipal(service, 't1'), ...more }, audience)}`;
}

/** What the proxy answers, and what the host does where the tunnel is open. */
async function ask(socket: Socket, authorization: string, host = 'tools.example'): Promise<string> {
  socket.on('error', () => undefined);
  const authority = `${host}:${webPort}`;
  socket.write(`CONNECT ${authority} HTTP/1.1\r\nHost: ${authority}\r\nProxy-Authorization: ${authorization}\r\n\r\n`);
  const head = await new Promise<string>((resolve) => {
    socket.once('data', (chunk) => resolve(chunk.toString()));
    socket.once('close', () => resolve('closed'));
  });
  if (!head.startsWith('HTTP/1.1 200')) return head;
  socket.write(`GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`);
  return text(socket).finally(() => socket.destroy());
}
const plain = () => connect(port, '127.0.0.1');

/** What a process of these services has mounted. */
async function certificateOf(services: string[], authority = certificates): Promise<TlsIdentity> {
  const { privateKey, publicKey } = newKeyPair();
  const lifetime = { notBeforeMs: Date.now() - DAY_MS, notAfterMs: Date.now() + DAY_MS };
  const issuer = { subject: 'spec', keys: authority };
  const use = { kind: 'peer' as const, names: services.map(peerName) };
  const ca = certify({ subject: 'spec', publicKey: authority.publicKey, issuer, ...lifetime, use: { kind: 'authority' } }); // prettier-ignore
  const folder = path.join(fixture.folder, `tls-${(count += 1)}`);
  await mkdir(folder);
  await writeFile(path.join(folder, 'tls.crt'), certify({ subject: 'peer', publicKey, issuer, ...lifetime, use }));
  await writeFile(path.join(folder, 'tls.key'), privateKey.export({ type: 'pkcs8', format: 'pem' }));
  await writeFile(path.join(folder, 'ca.crt'), ca);
  return TlsIdentity.open(folder, logger);
}
let count = 0;
const certificates = newKeyPair();
const encrypted = (tls: TlsIdentity) =>
  connectTls({ host: '127.0.0.1', port, servername: peerName('egress'), ...tls.pem });

describe('services that go out', () => {
  it('reach what the operator has excepted, whatever policies of tenants say, and stand in the record', async () => {
    await start();
    expect(await ask(plain(), await tokenOf('tool-executor'))).toMatch(/^HTTP\/1.1 200 OK\r\n.*hello/s);
    await closers.pop()?.();
    const records = lines.flatMap((line) => (JSON.parse(line) as { egress?: object }).egress ?? []);
    expect(records).toEqual([
      expect.objectContaining({ tenantId: 't1', service: 'tool-executor', host: 'tools.example', rule: 'service', decision: 'allowed' }), // prettier-ignore
    ]);
    expect(records[0]).not.toHaveProperty('sandboxId');
  });

  it('reach no other address that is not public, and none without a name', async () => {
    await start();
    const token = await tokenOf('tool-executor');
    expect(await ask(plain(), token, 'other.example')).toContain('X-Margay-Egress: egress_address');
    for (const host of ['127.0.0.1', '2130706433', '[::1]'])
      expect(await ask(plain(), token, host)).toContain('X-Margay-Egress: egress_denied');
  });

  it('are asked who they are, and only those that go out are let through', async () => {
    await start();
    const strangers = [
      '',
      'Basic YjE6dG9rZW4=',
      'Bearer a.b.c',
      await tokenOf('agent-runner'),
      await tokenOf('tool-executor', {}, 'session'),
    ];
    for (const authorization of strangers) {
      const answer = await ask(plain(), authorization);
      expect(answer).toMatch(/^HTTP\/1.1 407 /);
      expect(answer).toContain('X-Margay-Egress: egress_identity');
    }
  });

  it('show a certificate, and a principal of the service that it is for', async () => {
    await start(await certificateOf(['egress']));
    const token = await tokenOf('tool-executor');
    expect(await ask(encrypted(await certificateOf(['tool-executor'])), token)).toContain('hello');
    expect(await ask(encrypted(await certificateOf(['session', 'tool-executor'])), token)).toContain('hello');
    expect(await ask(encrypted(await certificateOf(['agent-runner'])), token)).toMatch(/^HTTP\/1.1 407 /);
    expect(await ask(encrypted(await certificateOf(['tool-executor'], newKeyPair())), token)).toBe('closed');
    expect(await ask(plain(), token)).toBe('closed');
  });

  it('are served with a new certificate of the proxy without a restart', async () => {
    const own = await certificateOf(['egress']);
    await start(own);
    const client = await certificateOf(['tool-executor']);
    const serialOf = () =>
      new Promise<string>((resolve) => {
        const socket = encrypted(client);
        socket.once('secureConnect', () => {
          resolve(socket.getPeerCertificate().serialNumber);
          socket.destroy();
        });
      });
    const before = await serialOf();
    const next = await certificateOf(['egress']);
    const folder = (own as unknown as { folder: string }).folder;
    const { cert, key } = next.pem;
    await writeFile(path.join(folder, 'tls.crt'), cert);
    await writeFile(path.join(folder, 'tls.key'), key);
    await own.refresh();
    while ((await serialOf()) === before) await delay(20);
    expect(await ask(encrypted(client), await tokenOf('tool-executor'))).toContain('hello');
  });
});
