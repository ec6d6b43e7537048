import { mkdtemp, mkdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Client, credentials, status } from '@grpc/grpc-js';
import { executorPb, sessionsPb } from '@margay/contracts';
import { generateKeys } from '../auth/key-files';
import { KeyRing } from '../auth/key-ring';
import { systemPrincipal } from '../auth/entitlements';
import { certify, newKeyPair, type KeyPair } from '../certificates/certificate';
import { grpcClient } from '../grpc/grpc-client';
import { GrpcServer } from '../grpc/grpc-server';
import type { GrpcClient, GrpcHandlers } from '../grpc/service-types';
import { createLogger } from '../logging/logger';
import { peerName } from './peers';
import { TlsIdentity } from './tls-identity';

const SERVICES = ['gateway', 'session', 'channel', 'tool-executor'];
const DAY_MS = 86_400_000;
const logger = createLogger({ service: 'spec', level: 'off' });
let folder: string;
let closers: (() => Promise<void> | void)[] = [];

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'margay-tls-'));
  await generateKeys(join(folder, 'keys'), SERVICES);
});
afterAll(() => rm(folder, { recursive: true }));
afterEach(async () => {
  for (const close of closers.reverse()) await close();
  closers = [];
});

interface Authority {
  keys: KeyPair;
  pem: string;
}

function newAuthority(): Authority {
  const keys = newKeyPair();
  const issuer = { subject: 'spec', keys };
  const lifetime = { notBeforeMs: Date.now() - DAY_MS, notAfterMs: Date.now() + DAY_MS };
  const pem = certify({ subject: 'spec', publicKey: keys.publicKey, issuer, ...lifetime, use: { kind: 'authority' } });
  return { keys, pem };
}

interface Files {
  services: string[];
  authority: Authority;
  /** Default: the authority alone. */
  trusted?: Authority[];
  notAfterMs?: number;
}

/** Writes what a process has mounted. */
async function writeTls(name: string, { services, authority, trusted = [authority], notAfterMs }: Files) {
  const { privateKey, publicKey } = newKeyPair();
  const certificate = certify({
    subject: services.join('+'),
    publicKey,
    issuer: { subject: 'spec', keys: authority.keys },
    notBeforeMs: Date.now() - DAY_MS,
    notAfterMs: notAfterMs ?? Date.now() + DAY_MS,
    use: { kind: 'peer', names: services.map(peerName) },
  });
  const directory = join(folder, name);
  await mkdir(directory, { recursive: true });
  await writeFile(join(directory, 'tls.crt'), certificate);
  await writeFile(join(directory, 'tls.key'), privateKey.export({ type: 'pkcs8', format: 'pem' }));
  await writeFile(join(directory, 'ca.crt'), trusted.map(({ pem }) => pem).join(''));
  return directory;
}

let count = 0;
const identityOf = async (files: Files) => TlsIdentity.open(await writeTls(`tls-${(count += 1)}`, files), logger);
const keysOf = (service: string, tls?: TlsIdentity) => KeyRing.load(join(folder, 'keys'), service, { tls });

const handlers = new Proxy(
  {
    interruptRun: () => Promise.resolve({ interrupted: true }),
    async *readCommits() {
      for (let c = 1; ; c += 1) {
        yield await Promise.resolve({ commits: [{ c, frames: [] }], state: undefined });
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
    },
  } as unknown as GrpcHandlers<typeof sessionsPb.SessionsDefinition>,
  { get: (known, key) => Reflect.get(known, key) ?? (() => Promise.reject(new Error('not faked'))) },
);

async function serve(keys: KeyRing, listen = '127.0.0.1:0'): Promise<string> {
  const server = new GrpcServer({ listen, keys, logger }).add(sessionsPb.SessionsDefinition, handlers);
  closers.push(() => server.close(0));
  const { port } = await server.start();
  return listen.startsWith('unix:') ? listen : `127.0.0.1:${port}`;
}

function clientOf(address: string, keys: KeyRing): GrpcClient<typeof sessionsPb.SessionsDefinition> {
  const client = grpcClient(sessionsPb.SessionsDefinition, address, { keys, logger });
  closers.push(() => client.close());
  return client;
}

const ask = (client: GrpcClient<typeof sessionsPb.SessionsDefinition>, service = 'gateway') =>
  client.interruptRun(
    { sessionId: 's', idempotencyKey: '' },
    { principal: systemPrincipal(service, 'acme'), timeoutMs: 60_000 },
  );

describe('encrypted calls', () => {
  const authority = newAuthority();

  it('are answered where both sides show a certificate of one authority, at any address', async () => {
    const address = await serve(await keysOf('session', await identityOf({ services: ['session'], authority })));
    const client = clientOf(address, await keysOf('gateway', await identityOf({ services: ['gateway'], authority })));
    expect(await ask(client)).toMatchObject({ interrupted: true });
  });

  it('are answered by a process of several services, to itself too', async () => {
    const tls = await identityOf({ services: ['gateway', 'session', 'channel'], authority });
    const address = await serve(await keysOf('session', tls));
    expect(await ask(clientOf(address, await keysOf('gateway', tls)))).toMatchObject({ interrupted: true });
  });

  it('are refused without a certificate, and in the clear', async () => {
    const address = await serve(await keysOf('session', await identityOf({ services: ['session'], authority })));
    await expect(ask(clientOf(address, await keysOf('gateway')))).rejects.toMatchObject({ code: 'UNAVAILABLE' });
    const nameless = new Client(address, credentials.createSsl(Buffer.from(authority.pem)), {
      'grpc.ssl_target_name_override': peerName('session'),
    });
    closers.push(() => nameless.close());
    const refused = await new Promise((resolve) => {
      const echo = (bytes: Buffer) => bytes;
      nameless.makeUnaryRequest('/margay.session.v1.Sessions/InterruptRun', echo, echo, Buffer.alloc(0), resolve);
    });
    expect(refused).toMatchObject({ code: status.UNAVAILABLE });
  });

  it('are refused with a certificate of another authority, whichever side shows it', async () => {
    const other = newAuthority();
    const server = await identityOf({ services: ['session'], authority });
    const address = await serve(await keysOf('session', server));
    const strangers = [
      { services: ['gateway'], authority: other, trusted: [authority] },
      { services: ['gateway'], authority, trusted: [other] },
    ];
    for (const files of strangers) {
      const client = clientOf(address, await keysOf('gateway', await identityOf(files)));
      await expect(ask(client)).rejects.toMatchObject({ code: 'UNAVAILABLE' });
    }
  });

  it('are refused with an expired certificate', async () => {
    const address = await serve(await keysOf('session', await identityOf({ services: ['session'], authority })));
    const tls = await identityOf({ services: ['gateway'], authority, notAfterMs: Date.now() - 1_000 });
    await expect(ask(clientOf(address, await keysOf('gateway', tls)))).rejects.toMatchObject({ code: 'UNAVAILABLE' });
  });

  it('of a service that has no business there are refused by name', async () => {
    const address = await serve(await keysOf('session', await identityOf({ services: ['session'], authority })));
    for (const services of [['session'], ['sandboxd'], []]) {
      const client = clientOf(address, await keysOf('channel', await identityOf({ services, authority })));
      await expect(ask(client, 'channel')).rejects.toMatchObject({ reason: 'caller_refused' });
    }
  });

  it('are refused with a principal of another service than the certificate is for', async () => {
    const address = await serve(await keysOf('session', await identityOf({ services: ['session'], authority })));
    const gateway = await identityOf({ services: ['gateway'], authority });
    const stolen = clientOf(address, await keysOf('channel', gateway));
    for (let time = 0; time < 2; time += 1)
      await expect(ask(stolen, 'channel')).rejects.toMatchObject({
        code: 'PERMISSION_DENIED',
        reason: 'issuer_not_caller',
        message: expect.stringMatching(/channel .* gateway\.margay\.internal/) as string,
      });
    const both = await identityOf({ services: ['gateway', 'channel'], authority });
    for (const service of ['gateway', 'channel'])
      expect(await ask(clientOf(address, await keysOf(service, both)), service)).toMatchObject({ interrupted: true });
  });

  it('go to no other service than the one that is meant', async () => {
    const address = await serve(await keysOf('session', await identityOf({ services: ['channel'], authority })));
    const tls = await identityOf({ services: ['gateway'], authority });
    await expect(ask(clientOf(address, await keysOf('gateway', tls)))).rejects.toMatchObject({ code: 'UNAVAILABLE' });
    const executor = grpcClient(executorPb.ExecutorDefinition, address, { keys: await keysOf('gateway', tls), logger });
    closers.push(() => executor.close());
    await expect(executor.listTools({}, { timeoutMs: 60_000 })).rejects.toMatchObject({ code: 'UNAVAILABLE' });
  });

  it('are not encrypted over a Unix socket', async () => {
    const tls = await identityOf({ services: ['gateway', 'session'], authority });
    const address = await serve(await keysOf('session', tls), `unix:${join(folder, 's.sock')}`);
    expect(await ask(clientOf(address, await keysOf('gateway')))).toMatchObject({ interrupted: true });
  });
});

describe('a new certificate', () => {
  it('is taken without a restart and without a cut, even from another authority', async () => {
    const [old, next] = [newAuthority(), newAuthority()];
    const both = [old, next];
    const [server, gateway] = [
      await identityOf({ services: ['session'], authority: old }),
      await identityOf({ services: ['gateway'], authority: old }),
    ];
    const address = await serve(await keysOf('session', server));
    const client = clientOf(address, await keysOf('gateway', gateway));
    const principal = systemPrincipal('gateway', 'acme');
    const request = { sessionId: 's', from: undefined, beforeTs: 0, last: 0, first: 0 };
    const stream = client.readCommits(request, { principal })[Symbol.asyncIterator]();
    expect((await stream.next()).done).toBe(false);
    const renew = async (identity: TlsIdentity, services: string[], authority: Authority, trusted: Authority[]) => {
      await writeTls((identity as unknown as { folder: string }).folder.slice(folder.length + 1), { services, authority, trusted }); // prettier-ignore
      await identity.refresh();
    };
    // First all trust both authorities, then they show the new one's, then the old one goes.
    for (const [authority, trusted] of [
      [old, both],
      [next, both],
      [next, [next]],
    ] as const) {
      // prettier-ignore
      await renew(server, ['session'], authority, [...trusted]);
      await renew(gateway, ['gateway'], authority, [...trusted]);
      expect(await ask(clientOf(address, await keysOf('gateway', gateway)))).toMatchObject({ interrupted: true });
      expect((await stream.next()).done).toBe(false);
    }
    await stream.return?.();
    const late = await identityOf({ services: ['gateway'], authority: old, trusted: both });
    await expect(ask(clientOf(address, await keysOf('gateway', late)))).rejects.toMatchObject({ code: 'UNAVAILABLE' });
  }, 30_000);

  it('that does not fit its key changes nothing, and is said', async () => {
    const authority = newAuthority();
    const directory = await writeTls('broken', { services: ['session'], authority });
    const tls = await TlsIdentity.open(directory, logger);
    const expiresAtMs = tls.expiresAtMs;
    expect(Math.abs(expiresAtMs - Date.now() - DAY_MS)).toBeLessThan(10_000);
    await writeFile(join(directory, 'tls.key'), newKeyPair().privateKey.export({ type: 'pkcs8', format: 'pem' }));
    await tls.refresh();
    expect(tls.fault).toContain('tls.crt is not for the key');
    const address = await serve(await keysOf('session', tls));
    const gateway = await identityOf({ services: ['gateway'], authority });
    expect(await ask(clientOf(address, await keysOf('gateway', gateway)))).toMatchObject({ interrupted: true });
    await writeTls('broken', { services: ['session'], authority });
    await tls.refresh();
    expect(tls.fault).toBeUndefined();
  });

  it('is asked for once the former one has expired, also where nothing else is wrong', async () => {
    const tls = await identityOf({ services: ['session'], authority: newAuthority() });
    expect(tls.fault).toBeUndefined();
    const clock = jest.spyOn(Date, 'now').mockReturnValue(Date.now() + 2 * DAY_MS);
    await tls.refresh();
    expect(tls.fault).toContain('has expired');
    clock.mockRestore();
    expect(tls.fault).toBeUndefined();
  });

  it('is needed for a start: a folder without one stops it', async () => {
    await expect(TlsIdentity.open(join(folder, 'nowhere'), logger)).rejects.toMatchObject({ reason: 'tls_unreadable' });
  });
});
