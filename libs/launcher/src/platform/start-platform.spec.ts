import { readFile, writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { FAKE_MARGAY, temporaryFolder } from '../fixtures.testing';
import { findIdentity } from '../processes/process-identity';
import type { Life } from './platform-process';
import { planProcesses } from './services';
import { startPlatform, type Platform, type StartPlatformOptions } from './start-platform';

describe('planProcesses', () => {
  it('puts all but the runner into one process, and runners always into their own', () => {
    expect(planProcesses('combined', { 'agent-runner': 2 })).toEqual([
      { name: 'control', services: ['gateway', 'session', 'tool-executor', 'mcp-pool', 'ide-manager', 'channel'] },
      { name: 'agent-runner', services: ['agent-runner'] },
      { name: 'agent-runner-2', services: ['agent-runner'] },
    ]);
    expect(planProcesses('split').map(({ name }) => name)).toHaveLength(7);
  });

  it('numbers the replicas of a service, which only split mode can have', () => {
    const names = planProcesses('split', { gateway: 2, session: 3 }).map(({ name }) => name);
    expect(names.slice(0, 5)).toEqual(['gateway', 'gateway-2', 'session', 'session-2', 'session-3']);
    expect(() => planProcesses('combined', { session: 2 })).toThrow(/several session processes need the mode split/);
  });
});

describe('startPlatform', () => {
  let folder: Awaited<ReturnType<typeof temporaryFolder>>;
  let platform: Platform | undefined;

  beforeEach(async () => {
    folder = await temporaryFolder();
  });
  afterEach(async () => {
    await platform?.stop(0);
    platform = undefined;
    await folder.remove();
  });

  const start = async (script = FAKE_MARGAY, options: Partial<StartPlatformOptions> = {}) => {
    const entry = join(folder.path, 'margay.cjs');
    await writeFile(entry, script);
    const servers = { nats: { url: 'nats://127.0.0.1:1' }, store: { url: 'mongodb://127.0.0.1:1' } };
    platform = await startPlatform({ home: join(folder.path, 'home'), entry, ...servers, ...options });
    return platform;
  };
  const firstLine = async (name: string): Promise<{ args: string[]; flags: string[]; names: string[] }> =>
    JSON.parse((await readFile(join(folder.path, 'home/logs', `${name}.log`), 'utf8')).split('\n')[0] ?? '');

  it('starts every process with its services, memory limits and no more rights than it needs', async () => {
    const { apiKey, gatewayUrl } = await start(FAKE_MARGAY, { database: 'test_a' });
    expect(apiKey).toMatch(/^mk_local_/);
    expect(gatewayUrl).toMatch(/^http:\/\/127\.0\.0\.1:\d+$/);
    const control = await firstLine('control');
    const runner = await firstLine('agent-runner');
    expect(control.args).toEqual(['--services', 'gateway,session,tool-executor,mcp-pool,ide-manager,channel']);
    expect(runner.args).toEqual(['--services', 'agent-runner']);
    expect(runner.flags).toEqual(['--max-semi-space-size=16', '--max-old-space-size=768']);
    expect(control.names).toEqual(
      expect.arrayContaining([
        'MARGAY_MONGODB_URL',
        'MARGAY_MONGODB_DATABASE',
        'MARGAY_BOOTSTRAP_KEY_FILE',
        'MARGAY_KEK_FILE',
      ]),
    );
    expect(runner.names).toEqual(expect.arrayContaining(['MARGAY_SESSION_URL', 'MARGAY_NATS_URL', 'MARGAY_KEYS_DIR']));
    expect(runner.names.filter((name) => /MONGODB|BOOTSTRAP|KEK/.test(name))).toEqual([]);
  });

  it('brings up seven processes in split mode', async () => {
    const { processes } = await start(FAKE_MARGAY, { mode: 'split' });
    expect(processes).toHaveLength(7);
    expect(new Set(processes.map((process) => process.pid)).size).toBe(7);
  });

  it.each(['combined', 'split'] as const)(
    'brings up the egress proxy with a policy alone, in %s mode',
    async (mode) => {
      const seen: Record<string, NodeJS.ProcessEnv> = {};
      const adapt = async (name: string, env: NodeJS.ProcessEnv) => {
        seen[name] = env;
        return {};
      };
      const { processes } = await start(FAKE_MARGAY, { mode, adapt, egressPolicyFile: 'policy.json' });
      const name = mode === 'split' ? 'egress' : 'control';
      expect(processes.map((process) => process.name)).toContain(name);
      const socket = join(folder.path, 'home/egress/relay.sock');
      expect(seen[name]).toMatchObject({
        MARGAY_EGRESS_POLICY_FILE: resolve('policy.json'),
        MARGAY_EGRESS_LOCAL_SOCKET: socket,
      });
      expect(seen[mode === 'split' ? 'tool-executor' : 'control']?.MARGAY_EGRESS_LOCAL_SOCKET).toBe(socket);
      expect(seen['agent-runner']).toMatchObject({
        MARGAY_EGRESS_POLICY_FILE: undefined,
        MARGAY_EGRESS_LOCAL_SOCKET: undefined,
      });
    },
  );

  it('gives replicas addresses of their own, and their clients all of them', async () => {
    const seen: Record<string, NodeJS.ProcessEnv> = {};
    const adapt = async (name: string, env: NodeJS.ProcessEnv) => {
      seen[name] = env;
      return name === 'session-2' ? { MARGAY_MARK: 'adapted' } : {};
    };
    const replicas = { gateway: 2, session: 2 };
    const running = await start(FAKE_MARGAY, { mode: 'split', replicas, adapt });
    const listens = ['session', 'session-2'].map((name) => seen[name]?.['MARGAY_SESSION_LISTEN']);
    expect(new Set(listens).size).toBe(2);
    expect(seen['gateway-2']?.['MARGAY_SESSION_URL']).toBe(`ipv4:${listens.join(',')}`);
    expect(running.serviceAddress('session')).toBe(`ipv4:${listens.join(',')}`);
    expect(seen['agent-runner']?.['MARGAY_TOOL_EXECUTOR_URL']).toBe(running.serviceAddress('tool-executor'));
    expect(running.gatewayUrls).toEqual(
      ['gateway', 'gateway-2'].map((name) => `http://${seen[name]?.['MARGAY_GATEWAY_LISTEN']}`),
    );
    expect((await firstLine('session-2')).names).toContain('MARGAY_MARK');
    expect((await firstLine('session')).names).not.toContain('MARGAY_MARK');
  });

  it('restarts one process at its old address and leaves the others alone', async () => {
    const { processes, get, managementUrl, restart } = bind(await start(FAKE_MARGAY, { runners: 2 }));
    const before = Object.fromEntries(processes.map((process) => [process.name, process.pid]));
    await get('agent-runner').kill('SIGKILL');
    expect(get('agent-runner').pid).toBeUndefined();
    await restart('agent-runner');
    expect(get('agent-runner').pid).not.toBe(before['agent-runner']);
    expect([get('control').pid, get('agent-runner-2').pid]).toEqual([before['control'], before['agent-runner-2']]);
    expect((await fetch(`${managementUrl('agent-runner')}/readyz`)).status).toBe(200);
  });

  it('gives one life of a process an environment of its own, and waits for what it is told', async () => {
    const script = FAKE_MARGAY.replace("'/readyz'", "(process.env.MARGAY_MARK ? '/startupz' : '/readyz')");
    const { restart } = bind(await start(script));
    await restart('agent-runner', { env: { MARGAY_MARK: '1' }, until: 'started' });
    await restart('agent-runner');
    const lives = (await readFile(join(folder.path, 'home/logs/agent-runner.log'), 'utf8')).trim().split('\n');
    expect(lives.map((line) => line.includes('MARGAY_MARK'))).toEqual([false, true, false]);
  });

  it('starts a crashed process again when told to', async () => {
    const seen = Promise.withResolvers<string>();
    const { get } = bind(await start(FAKE_MARGAY, { respawn: true, progress: seen.resolve }));
    const before = get('agent-runner').pid;
    await get('agent-runner').kill('SIGKILL');
    expect(await seen.promise).toMatch(/^agent-runner ended \(signal SIGKILL\), starting it again/);
    await until(() => get('agent-runner').pid !== undefined);
    expect(get('agent-runner').pid).not.toBe(before);
  });

  it('leaves nothing running when one process does not come up', async () => {
    const script = `if (process.argv.join().includes('agent-runner')) { console.log('no model'); process.exit(1); }\n${FAKE_MARGAY}`;
    const pids: number[] = [];
    const failure = start(
      `require('node:fs').appendFileSync(${JSON.stringify(join(folder.path, 'pids'))}, process.pid + '\\n');${script}`,
    );
    await expect(failure).rejects.toThrow(/agent-runner ended \(exit code 1\).*no model/s);
    const text = await readFile(join(folder.path, 'pids'), 'utf8').catch(() => '');
    pids.push(...text.split('\n').filter(Boolean).map(Number));
    expect(await Promise.all(pids.map(findIdentity))).toEqual(pids.map(() => undefined));
  });

  it('ends all it started, and twice is no harm', async () => {
    const { processes, stop } = bind(await start());
    const pids = processes.map((process) => process.pid ?? 0);
    await stop();
    await stop();
    expect(await Promise.all(pids.map(findIdentity))).toEqual([undefined, undefined]);
  });

  it('names the processes there are for a wrong name', async () => {
    const running = await start();
    expect(() => running.get('gateway')).toThrow(/there are control, agent-runner/);
  });
});

function bind(platform: Platform) {
  return {
    processes: platform.processes,
    get: (name: string) => platform.get(name),
    managementUrl: (name: string) => platform.managementUrl(name),
    restart: (name: string, life?: Life) => platform.restart(name, life),
    stop: () => platform.stop(),
  };
}

async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((resolve) => setTimeout(resolve, 20));
}
