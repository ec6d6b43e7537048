import { spawn, type ChildProcess } from 'node:child_process';
import { generateKeyPairSync } from 'node:crypto';
import { once } from 'node:events';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { execFileSync } from 'node:child_process';
import { sandboxdPb } from '@margay/contracts';
import { isMargayError } from '@margay/errors';
import { grpcClient, KeyRing, type GrpcClient } from '@margay/platform';

const { SandboxdDefinition } = sandboxdPb;
const keys = generateKeyPairSync('ed25519');
const publicPem = keys.publicKey.export({ type: 'spki', format: 'pem' }).toString();
const ring = new KeyRing({
  service: 'tool-executor',
  trust: { 'tool-executor': [publicPem] },
  privateKey: keys.privateKey,
});

let folder: string;
let bundle: string;
let daemon: ChildProcess;
let client: GrpcClient<typeof SandboxdDefinition>;

const token = (epoch = 1): Promise<string> =>
  ring.signSandboxGrant({
    v: 1,
    sandboxId: 'sb1',
    tenantId: 't1',
    sessionId: 's1',
    runId: 'r1',
    storeGeneration: 0,
    epoch,
    scope: ['execute', 'admin'],
  });

async function start(more: Record<string, string> = {}): Promise<void> {
  writeFileSync(path.join(folder, 'trust.pem'), publicPem);
  mkdirSync(path.join(folder, 'ws'), { recursive: true });
  daemon = spawn(process.execPath, [bundle], {
    env: {
      MARGAY_SANDBOX_ID: 'sb1',
      MARGAY_SANDBOX_LISTEN: `unix:${folder}/s.sock`,
      MARGAY_SANDBOX_TRUST_FILE: path.join(folder, 'trust.pem'),
      MARGAY_SANDBOX_STATE_DIR: path.join(folder, 'state'),
      MARGAY_SANDBOX_ROOT: path.join(folder, 'ws'),
      MARGAY_SANDBOX_SPILL_DIR: path.join(folder, 'results'),
      MARGAY_SANDBOX_ISOLATION: 'none',
      MARGAY_SANDBOX_PROCESSES: '0',
      MARGAY_SESSION_ID: 's1',
      PATH: process.env['PATH'],
      ...more,
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  await once(daemon.stdout as NodeJS.ReadableStream, 'data');
  client = grpcClient(SandboxdDefinition, `unix:${folder}/s.sock`);
}

async function kill(): Promise<void> {
  client.close();
  const gone = once(daemon, 'exit');
  daemon.kill('SIGKILL');
  await gone;
}

const request = (command: string, more: Partial<sandboxdPb.ExecuteRequest> = {}): sandboxdPb.ExecuteRequest => ({
  callId: 'process-1',
  toolId: 'aider_shell_tool',
  argsJson: JSON.stringify({ command }),
  argHash: command,
  effect: 'unkeyed',
  timeoutMs: 0,
  fromOffset: 0,
  incarnation: '',
  ...more,
});

async function execute(wanted: sandboxdPb.ExecuteRequest, epoch = 1): Promise<sandboxdPb.Finished> {
  for await (const { message } of client.execute(wanted, { grant: await token(epoch) })) {
    if (message?.$case === 'finished') return message.value;
  }
  throw new Error('the stream ended without a result');
}

const workspaceFile = (name: string): string => path.join(folder, 'ws', name);

beforeAll(() => {
  bundle = path.join(mkdtempSync(path.join(tmpdir(), 'margay-bundle-')), 'sandboxd.cjs');
  execFileSync(process.execPath, [path.join(__dirname, '../bundle.mjs'), bundle]);
});
afterAll(() => rmSync(path.dirname(bundle), { recursive: true, force: true }));
beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'margay-sandboxd-'));
});
afterEach(async () => {
  if (daemon.exitCode === null && daemon.signalCode === null) await kill();
  rmSync(folder, { recursive: true, force: true });
});

describe('sandboxd as a process', () => {
  it('greets, keeps its socket to its user, and ends on Shutdown', async () => {
    await start();
    const hello = await client.hello({ workspaceId: 'w' }, { grant: await token() });
    expect(hello).toMatchObject({ isolation: 'none', incarnation: expect.stringMatching(/^[0-9a-f]{32}$/) });
    expect(hello.tools).toContain('read_file');
    expect(statSync(path.join(folder, 's.sock')).mode & 0o077).toBe(0);
    const gone = once(daemon, 'exit');
    await client.shutdown({ graceMs: 100 }, { grant: await token() });
    expect((await gone)[0]).toBe(0);
    client.close();
  });

  it('refuses calls without a valid grant by their reason', async () => {
    await start();
    const reasonOf = (work: Promise<unknown>): Promise<string> =>
      work.then(
        () => 'accepted',
        (error: unknown) => (isMargayError(error) ? `${error.code} ${error.reason}` : String(error)),
      );
    expect(await reasonOf(client.hello({ workspaceId: '' }))).toBe('UNAUTHENTICATED grant_missing');
    expect(await reasonOf(client.hello({ workspaceId: '' }, { grant: 'x.y.z' }))).toBe('UNAUTHENTICATED grant_invalid');
    await execute(request('true'), 4);
    expect(await reasonOf(execute(request('true'), 3))).toBe('FAILED_PRECONDITION stale_epoch');
  });

  it('reports an unkeyed call as unknown when it was killed between start and result, and never runs it again', async () => {
    await start();
    const { incarnation } = await client.hello({ workspaceId: '' }, { grant: await token() });
    const running = execute(request('echo x >> count; sleep 60')).catch((error: unknown) => error);
    while (!existsSync(workspaceFile('count'))) await delay(5);
    await kill();
    await running;
    await start();
    const again = await execute(request('echo x >> count; sleep 60', { incarnation }));
    expect(again).toMatchObject({ status: 'unknown', limitHit: 'restart' });
    expect(readFileSync(workspaceFile('count'), 'utf8')).toBe('x\n');
    const marked = execFileSync('sh', [
      '-c',
      'grep -l MARGAY_CALL_ID=process-1 /proc/[0-9]*/environ 2>/dev/null; true',
    ]);
    expect(marked.toString()).toBe('');
  });

  it('runs a pure call again after such a death', async () => {
    await start();
    writeFileSync(workspaceFile('a.txt'), 'hello');
    const read = request('r', { toolId: 'read_file', effect: 'pure', argsJson: '{"path":"a.txt"}' });
    await execute(read);
    await kill();
    await start();
    expect(await execute(read)).toMatchObject({ status: 'ok', resultJson: expect.stringContaining('1\\thello') });
  });

  it('applies each edit exactly once however often it is killed', async () => {
    await start();
    const rounds = 12;
    for (let round = 0; round < rounds; round += 1) {
      const edit = request(`e${round}`, {
        callId: `e${round}`,
        toolId: 'file_edit_tool',
        effect: 'keyed',
        argsJson: JSON.stringify({ file_path: 'log.txt', old_string: '', new_string: `${round}\n` }),
      });
      const first = execute(edit).catch(() => undefined);
      await delay(round % 4);
      await kill();
      await first;
      await start();
      expect((await execute(edit)).status).toBe('ok');
    }
    const lines = Array.from({ length: rounds }, (_, round) => `${round}\n`).join('');
    expect(readFileSync(workspaceFile('log.txt'), 'utf8')).toBe(lines);
    expect(readdirSync(path.join(folder, 'ws')).filter((name) => name === 'log.txt')).toHaveLength(1);
  });

  it('keeps the highest epoch across a kill', async () => {
    await start();
    await execute(request('true'), 7);
    await kill();
    await start({ MARGAY_SANDBOX_MIN_EPOCH: '5' });
    await expect(execute(request('true', { callId: 'c2' }), 6)).rejects.toMatchObject({ reason: 'stale_epoch' });
  });

  it('ends by itself when nobody calls any more', async () => {
    await start({ MARGAY_SANDBOX_IDLE_EXIT_MS: '1' });
    const [code] = (await once(daemon, 'exit')) as [number];
    expect(code).toBe(0);
    client.close();
  });

  it('ends by itself when its folder was deleted', async () => {
    await start();
    rmSync(folder, { recursive: true });
    const [code] = (await once(daemon, 'exit')) as [number];
    expect(code).toBe(0);
    client.close();
  });
});
