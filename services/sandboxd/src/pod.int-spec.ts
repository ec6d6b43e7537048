import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { generateKeyPairSync, type X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { chmodSync, chownSync, copyFileSync, existsSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { connect } from 'node:tls';
import { sandboxdPb, type SandboxGrant } from '@margay/contracts';
import { isMargayError } from '@margay/errors';
import { grpcClient, KeyRing, type GrpcClient } from '@margay/platform';
import { selfSigned } from './tls/self-signed';

const keys = generateKeyPairSync('ed25519');
const trust = keys.publicKey.export({ type: 'spki', format: 'pem' }).toString();
const ring = new KeyRing({
  service: 'tool-executor',
  trust: { 'tool-executor': [trust] },
  privateKey: keys.privateKey,
});

/** In a pod all processes of the daemon's user are its own; here it needs a user of its own for that to be true. */
const USER = process.getuid?.() === 0 ? { uid: 29_990, gid: 29_990 } : {};

let folder: string;
let bundle: string;
let address: string;
let daemon: ChildProcess;
let client: GrpcClient<typeof sandboxdPb.SandboxdDefinition>;

const token = (more: Partial<SandboxGrant> = {}): Promise<string> =>
  ring.signSandboxGrant({
    v: 1,
    sandboxId: 'pod-uid-1',
    tenantId: 't1',
    sessionId: 's1',
    storeGeneration: 0,
    epoch: 1,
    scope: ['execute', 'admin'],
    ...more,
  });

async function freeAddress(): Promise<string> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as { port: number };
  server.close();
  return `127.0.0.1:${port}`;
}

/** As in a pod: a port, TLS, no session yet, keys in the environment. */
async function start(): Promise<void> {
  daemon = spawn(path.join(path.dirname(bundle), 'node'), [bundle], {
    env: {
      MARGAY_SANDBOX_ID: 'pod-uid-1',
      MARGAY_SANDBOX_LISTEN: address,
      MARGAY_SANDBOX_TRUST: trust,
      MARGAY_SANDBOX_STATE_DIR: path.join(folder, 'state'),
      MARGAY_SANDBOX_ROOT: path.join(folder, 'ws'),
      MARGAY_SANDBOX_SPILL_DIR: path.join(folder, 'results'),
      MARGAY_SANDBOX_ISOLATION: 'pod',
      MARGAY_SANDBOX_PROCESSES: '0',
      MARGAY_SANDBOX_IDLE_EXIT_MS: '0',
      MARGAY_SANDBOX_DRAIN_MS: '60000',
      PATH: process.env['PATH'],
    },
    stdio: ['ignore', 'pipe', 'inherit'],
    ...USER,
  });
  await once(daemon.stdout as NodeJS.ReadableStream, 'data');
  client = grpcClient(sandboxdPb.SandboxdDefinition, address, { pinnedCertificate: await shownCertificate() });
}

async function shownCertificate(): Promise<string> {
  const [host, port] = address.split(':');
  const socket = connect({ host, port: Number(port), rejectUnauthorized: false });
  await once(socket, 'secureConnect');
  const certificate = socket.getPeerX509Certificate() as X509Certificate;
  socket.destroy();
  return certificate.toString();
}

async function end(signal: NodeJS.Signals): Promise<void> {
  client.close();
  const gone = once(daemon, 'exit');
  daemon.kill(signal);
  await gone;
}

async function execute(
  command: string,
  callId = 'c1',
  grant: Partial<SandboxGrant> = {},
): Promise<sandboxdPb.Finished> {
  const argsJson = JSON.stringify({ command });
  const fixed = { toolId: 'aider_shell_tool', effect: 'unkeyed', timeoutMs: 0, fromOffset: 0, incarnation: '' };
  const request = { ...fixed, callId, argsJson, argHash: command };
  for await (const { message } of client.execute(request, { grant: await token(grant) })) {
    if (message?.$case === 'finished') return message.value;
  }
  throw new Error('the stream ended without a result');
}

const refusal = (work: Promise<unknown>): Promise<string> =>
  work.then(
    () => 'accepted',
    (error: unknown) => (isMargayError(error) ? `${error.code} ${error.reason}` : String(error)),
  );

const stdoutOf = ({ resultJson }: sandboxdPb.Finished): string => (JSON.parse(resultJson) as { stdout: string }).stdout;

beforeAll(() => {
  bundle = path.join(mkdtempSync(path.join(tmpdir(), 'margay-bundle-')), 'sandboxd.cjs');
  execFileSync(process.execPath, [path.join(__dirname, '../bundle.mjs'), bundle]);
  // The user of the daemon need not get through to where this checkout lies.
  copyFileSync(process.execPath, path.join(path.dirname(bundle), 'node'));
  chmodSync(path.join(path.dirname(bundle), 'node'), 0o755);
  chmodSync(path.dirname(bundle), 0o755);
});
afterAll(() => rmSync(path.dirname(bundle), { recursive: true, force: true }));
beforeEach(async () => {
  folder = mkdtempSync(path.join(tmpdir(), 'margay-sandboxd-'));
  mkdirSync(path.join(folder, 'ws'));
  for (const name of [folder, path.join(folder, 'ws')]) if (USER.uid) chownSync(name, USER.uid, USER.gid);
  address = await freeAddress();
  await start();
});
afterEach(async () => {
  if (daemon.exitCode === null && daemon.signalCode === null) await end('SIGKILL');
  rmSync(folder, { recursive: true, force: true });
});

describe('sandboxd in a pod', () => {
  it('can be greeted before it serves a session, and is bound by the first grant that names one', async () => {
    const nobody = { tenantId: 'system', sessionId: undefined, epoch: 0 };
    await client.hello({ workspaceId: '' }, { grant: await token(nobody) });
    expect(await refusal(execute('true', 'c0', { sessionId: undefined }))).toBe('PERMISSION_DENIED grant_scope');
    await client.hello({ workspaceId: '' }, { grant: await token({ epoch: 3 }) });
    expect(stdoutOf(await execute('echo $MARGAY_SESSION_ID', 'c1', { epoch: 3 }))).toBe('s1\n');
    expect(await refusal(execute('true', 'c2', { sessionId: 's2', epoch: 9 }))).toBe('PERMISSION_DENIED sandbox_bound');
    expect(await refusal(execute('true', 'c2', { epoch: 2 }))).toBe('FAILED_PRECONDITION stale_epoch');
    expect(await refusal(execute('true', 'c2', { sandboxId: 'pod-uid-2' }))).toBe('PERMISSION_DENIED grant_audience');
  });

  it('shows nobody else its certificate, and the same one when its container starts again', async () => {
    const before = await shownCertificate();
    await execute('echo x >> once');
    await end('SIGKILL');
    await start();
    expect(await shownCertificate()).toBe(before);
    expect(stdoutOf(await execute('cat once', 'c2'))).toBe('x\n');
    const stranger = grpcClient(sandboxdPb.SandboxdDefinition, address, {
      pinnedCertificate: selfSigned('margay-sandbox').certificatePem,
    });
    const answer = stranger.hello({ workspaceId: '' }, { grant: await token(), timeoutMs: 2_000 });
    expect(await refusal(answer)).toMatch(/^UNAVAILABLE|^DEADLINE_EXCEEDED/);
    stranger.close();
  });

  it('reports a call as killed when its container ended, since nothing of it can live on', async () => {
    const running = execute('echo x >> count; sleep 60').catch((error: unknown) => error);
    while (!existsSync(path.join(folder, 'ws/count'))) await delay(5);
    await end('SIGKILL');
    await running;
    await start();
    expect(await execute('echo x >> count; sleep 60')).toMatchObject({ status: 'killed', limitHit: 'restart' });
  });

  it('lets calls end on SIGTERM and starts no new one, then goes', async () => {
    const running = execute('echo up > up; while [ ! -e go ]; do sleep 0.05; done; echo done');
    while (!existsSync(path.join(folder, 'ws/up'))) await delay(5);
    const gone = once(daemon, 'exit');
    daemon.kill('SIGTERM');
    while ((await refusal(execute('echo x > ran', `n${Math.random()}`))) === 'accepted') await delay(5);
    rmSync(path.join(folder, 'ws/ran'), { force: true });
    expect(await refusal(execute('echo x > ran', 'c9'))).toBe('UNAVAILABLE sandbox_closing');
    execFileSync('touch', [path.join(folder, 'ws/go')]);
    expect(stdoutOf(await running)).toBe('done\n');
    expect((await gone)[0]).toBe(0);
    expect(existsSync(path.join(folder, 'ws/ran'))).toBe(false);
  });
});
