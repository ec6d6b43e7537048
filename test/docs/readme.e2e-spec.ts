import { spawn, type ChildProcess } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { answer, ScriptedModelServer } from '@margay/testing';

jest.setTimeout(240_000);

const root = join(__dirname, '../..');
const readme = readFileSync(join(root, 'README.md'), 'utf8');
/** The shell blocks of the README, in order. */
const blocks = [...readme.matchAll(/```sh\n([\s\S]*?)```/g)].map(([, block]) => block ?? '');

let home: string;
const children = new Set<ChildProcess>();

beforeAll(async () => {
  home = await mkdtemp(join(tmpdir(), 'margay-readme-'));
});
afterAll(async () => {
  for (const child of children) kill(child, 'SIGKILL');
  await rm(home, { recursive: true, force: true });
});

interface Ended {
  code: number | null;
  output: string;
}

/** Runs a block as a newcomer's shell would, in a process group of its own. */
function run(
  block: string,
  env: NodeJS.ProcessEnv,
): { child: ChildProcess; output: () => string; ended: Promise<Ended> } {
  const environment = { ...process.env, MARGAY_HOME: home, ...env };
  const child = spawn('sh', ['-ec', block], {
    cwd: root,
    env: environment,
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  children.add(child);
  let output = '';
  child.stdout?.on('data', (data: Buffer) => (output += data.toString()));
  child.stderr?.on('data', (data: Buffer) => (output += data.toString()));
  const ended = new Promise<Ended>((resolve) =>
    child.once('close', (code) => {
      children.delete(child);
      resolve({ code, output });
    }),
  );
  return { child, output: () => output, ended };
}

function kill(child: ChildProcess, signal: NodeJS.Signals): void {
  if (child.pid !== undefined) process.kill(-child.pid, signal);
}

async function until(isTrue: () => boolean): Promise<void> {
  while (!isTrue()) await new Promise((resolve) => setTimeout(resolve, 50));
}

/** Environment without a model provider of the machine's own. */
const offline = { OPENAI_API_KEY: undefined, OPENAI_BASE_URL: undefined, MARGAY_MODEL: undefined };

it('holds the four shell blocks that are run here', () => {
  expect(blocks.map((block) => block.split('\n')[0])).toEqual([
    'npm start',
    expect.stringMatching(/^npm start -- "Look around/),
    expect.stringMatching(/^export OPENAI_BASE_URL=/),
    expect.stringMatching(/^curl /),
  ]);
});

it('starts with the first command, answers the curl commands, and ends everything at Ctrl-C', async () => {
  const started = run(blocks[0] ?? '', offline);
  await until(() => started.output().includes('Ctrl-C ends everything') || started.child.exitCode !== null);
  const url = /Margay is ready: (\S+)/.exec(started.output())?.[1];
  const key = /mk_local_\S+/.exec(started.output())?.[0]?.replace(/'$/, '');
  expect(url).toBeDefined();
  const [create = '', ...rest] = (blocks[3] ?? '').split('\n');
  const env = { MARGAY_URL: url, MARGAY_API_KEY: key };
  const created = await run(create, env).ended;
  const { session_id: session } = JSON.parse(created.output) as { session_id: string };
  const followed = await run(rest.join('\n'), { ...env, SESSION: session }).ended;
  expect(followed.output).toContain('"accepted":true');
  expect(followed.output).toContain('"type":"completion"');
  expect(followed.output).toContain('"type":"stream_end"');
  kill(started.child, 'SIGINT');
  expect((await started.ended).output).toContain('stopping');
  await expect(fetch(`${url}/healthz`)).rejects.toThrow();
});

it('runs one task with the second command and names real files of the workspace', async () => {
  const { code, output } = await run(blocks[1] ?? '', offline).ended;
  expect(output).toMatch(/tool_(call|result)/);
  expect(output).toContain('config.py');
  expect(code).toBe(0);
});

it('runs the same task on any OpenAI-compatible server', async () => {
  const model = await ScriptedModelServer.start({ script: () => answer('an answer of another model') });
  try {
    const block = (blocks[2] ?? '').replace('http://127.0.0.1:8000/v1', model.baseUrl);
    const { code, output } = await run(block, offline).ended;
    expect(output).toContain('an answer of another model');
    expect(code).toBe(0);
    expect(model.requests[0]?.model).toBe('your-model');
  } finally {
    await model.close();
  }
});
