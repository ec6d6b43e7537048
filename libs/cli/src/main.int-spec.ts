import { spawn, type ChildProcess } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { FakeGateway } from '@margay/testing';
import { build } from 'esbuild';

let folder: string;
let gateway: FakeGateway;
const children: ChildProcess[] = [];

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'margay-main-'));
  await build({
    entryPoints: [join(__dirname, 'main.ts')],
    outfile: join(folder, 'cli.cjs'),
    bundle: true,
    platform: 'node',
    target: 'node20',
    format: 'cjs',
    conditions: ['@margay/source'],
  });
});
afterAll(() => rm(folder, { recursive: true }));
beforeEach(async () => {
  gateway = await FakeGateway.start();
});
afterEach(async () => {
  for (const child of children.splice(0)) child.kill('SIGKILL');
  await gateway.close();
});

function start(...args: string[]): { child: ChildProcess; text: () => string; ended: Promise<number | null> } {
  const variables = { MARGAY_URL: gateway.url, MARGAY_API_KEY: gateway.apiKey, MARGAY_HOME: folder };
  const child = spawn(process.execPath, [join(folder, 'cli.cjs'), ...args], { env: variables, stdio: 'pipe' });
  children.push(child);
  let text = '';
  child.stdout.on('data', (chunk: Buffer) => (text += chunk));
  child.stderr.on('data', (chunk: Buffer) => (text += chunk));
  return { child, text: () => text, ended: new Promise((resolve) => child.once('close', resolve)) };
}

it('reads a task from a pipe, prints the answer and exits with the run’s code', async () => {
  gateway.onRun = (session, text) => session.finish(`you said ${text}`, { done_reason: 'error', error: 'x' }, 'failed');
  const { child, text, ended } = start('run', '--quiet', '-');
  child.stdin?.end('hello');
  expect([await ended, text()]).toEqual([1, 'you said hello\n']);
});

it('interrupts on the first Ctrl-C, leaves on the second, and the run goes on', async () => {
  const interrupted = new Promise<void>((resolve) => {
    gateway.interceptors.push(({ path }) => {
      if (path.endsWith('/interrupt')) resolve();
      return false;
    });
  });
  const listened = new Promise<void>(
    (resolve) => (gateway.onRun = (session) => session.listened().then(() => resolve())),
  );
  const { child, text, ended } = start('run', 'x');
  await listened;
  child.kill('SIGINT');
  await interrupted;
  child.kill('SIGINT');
  expect(await ended).toBe(130);
  expect(text()).toContain('detached, the run goes on');
  expect([...gateway.sessions.values()][0]?.state.running).toBe(true);
});

it('ends quietly when its reader goes away', async () => {
  const session = gateway.addSession();
  for (let index = 0; index < 5000; index += 1) session.append('user', { text: 'x'.repeat(100) });
  const { child, text, ended } = start('tail', session.id);
  child.stdout?.once('data', () => child.stdout?.destroy());
  expect(await ended).toBe(0);
  expect(text()).not.toContain('EPIPE');
});
