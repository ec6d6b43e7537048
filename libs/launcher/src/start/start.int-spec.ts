import { existsSync } from 'node:fs';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { launcherConfig } from '../config';
import { FAKE_MARGAY, temporaryFolder } from '../fixtures.testing';
import { findIdentity } from '../processes/process-identity';
import { freePorts } from '../processes/ports';
import { openHome } from './home';
import { startCommandLine } from './start';

const FAKE_CLI = `
require('node:fs').writeFileSync(process.env.MARGAY_HOME + '/cli.json', JSON.stringify({ args: process.argv.slice(2), url: process.env.MARGAY_URL }));
process.exit(8);
`;
const FAKE_MODEL = `console.log('demo model listening on http://127.0.0.1:1/v1'); setInterval(() => {}, 1000);`;

describe('npm start', () => {
  let folder: Awaited<ReturnType<typeof temporaryFolder>>;
  let interrupt: AbortController;
  let progress: string[];
  let printed: PromiseWithResolvers<string>;

  beforeEach(async () => {
    folder = await temporaryFolder();
    interrupt = new AbortController();
    progress = [];
    printed = Promise.withResolvers();
    const files = {
      'dist/margay.cjs': FAKE_MARGAY,
      'dist/cli.cjs': FAKE_CLI,
      'tools/demo-model/server.mjs': FAKE_MODEL,
      'tools/sample-workspace/config.py': 'session_daily_limit = 10\n',
    };
    for (const [name, text] of Object.entries(files)) {
      await mkdir(join(folder.path, name, '..'), { recursive: true });
      await writeFile(join(folder.path, name), text);
    }
  });
  afterEach(() => folder.remove());

  const home = () => join(folder.path, 'home');
  const start = async (...args: string[]) => {
    const own = { OPENAI_API_KEY: '', OPENAI_BASE_URL: '', MARGAY_NATS_URL: '', MARGAY_MONGODB_URL: '' };
    const environment = { ...launcherConfig().environment, ...own };
    const [port] = await freePorts(1);
    return startCommandLine({
      args: ['--home', home(), '--port', String(port), ...args],
      root: folder.path,
      calledIn: folder.path,
      progress: (line) => progress.push(line),
      print: printed.resolve,
      signal: interrupt.signal,
      config: launcherConfig(environment),
    });
  };
  const recorded = async (): Promise<{ name: string; pid: number }[]> =>
    JSON.parse(await readFile(join(home(), 'run/processes.json'), 'utf8'));

  it('comes up, says how to use it, and ends all of it on an interrupt', async () => {
    const exitCode = start();
    const text = await Promise.race([printed.promise, exitCode.then(String)]);
    expect(text).toMatch(/Margay is ready: http:\/\/127\.0\.0\.1:\d+/);
    expect(text).toMatch(/API key {3}mk_local_/);
    expect(text).toContain(join(home(), 'profiles.json'));
    expect(text).toMatch(/curl .*X-API-KEY: mk_local_/);
    expect(progress).toContainEqual(expect.stringMatching(/demonstration model/));
    const pids = (await recorded()).map(({ pid }) => pid);
    expect(pids.length).toBeGreaterThanOrEqual(3);
    interrupt.abort();
    expect(await exitCode).toBe(0);
    expect(await Promise.all(pids.map(findIdentity))).toEqual(pids.map(() => undefined));
    expect(existsSync(join(home(), 'run/start.lock'))).toBe(false);
  });

  it('runs a task by the client in a session on a copy of the sample, and ends with its exit code', async () => {
    expect(await start('raise', 'the limit')).toBe(8);
    const { args, url } = JSON.parse(await readFile(join(home(), 'cli.json'), 'utf8'));
    expect(args).toEqual(['run', '--cwd', expect.stringMatching(/home\/workspaces\/sample-/), '--', 'raise the limit']);
    expect(await readFile(join(args[2], 'config.py'), 'utf8')).toContain('session_daily_limit');
    expect(url).toMatch(/^http:\/\/127\.0\.0\.1:\d+$/);
    expect(await recorded()).toEqual([]);
  });

  it('refuses a home that another start uses', async () => {
    const other = await openHome(home(), () => undefined);
    await expect(start()).rejects.toThrow(/already runs in .*\(process \d+\)/);
    await other.release();
  });

  it.each(['nats-server', 'demo-model'])('tells that %s ended by itself and stops the rest', async (name) => {
    const exitCode = start();
    await Promise.race([printed.promise, exitCode]);
    const failure = expect(exitCode).rejects.toMatchObject({ reason: 'server_ended' });
    const { pid } = (await recorded()).find((entry) => entry.name === name) ?? {};
    if (pid === undefined) throw new Error(`${name} is not recorded`);
    process.kill(pid, 'SIGKILL');
    await failure;
    expect(await recorded()).toEqual([]);
  });
});
