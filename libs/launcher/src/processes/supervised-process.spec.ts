import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { temporaryFolder } from '../fixtures.testing';
import { endingWithParent } from './parent-death';
import { PidLedger } from './pid-ledger';
import { findIdentity } from './process-identity';
import { startProcess } from './start-process';
import { startCommand, type SupervisedProcess } from './supervised-process';

const FAMILY = `
const { spawn } = require('node:child_process');
const child = spawn('sleep', ['60']);
console.log('ready with child ' + child.pid);
setInterval(() => {}, 1000);
`;

describe('supervised process', () => {
  let folder: Awaited<ReturnType<typeof temporaryFolder>>;
  const started: SupervisedProcess[] = [];

  beforeEach(async () => {
    folder = await temporaryFolder();
  });
  afterEach(async () => {
    await Promise.all(started.splice(0).map((process) => process.stop(0)));
    await folder.remove();
  });

  const start = async (
    script: string,
    options: { onExit?: () => void; readyTimeoutMs?: number; ledger?: PidLedger } = {},
  ) => {
    const entry = join(folder.path, 'script.cjs');
    await writeFile(entry, script);
    const process = await startProcess({
      name: 'worker',
      entry,
      readyLine: /ready.*?(\d*)\n/,
      logFile: join(folder.path, 'worker.log'),
      ...options,
    });
    started.push(process);
    return process;
  };

  it('answers what the ready line said and stops on SIGTERM', async () => {
    const process = await start(
      `console.log('ready at 42'); process.on('SIGTERM', () => process.exit(3)); setInterval(() => {}, 1000)`,
    );
    expect(process.ready?.[1]).toBe('42');
    await process.stop();
    expect(await process.exited).toEqual({ code: 3, signal: null, expected: true });
    expect(await findIdentity(process.pid)).toBeUndefined();
  });

  it('kills one that ignores SIGTERM after the grace', async () => {
    const process = await start(`process.on('SIGTERM', () => {}); console.log('ready'); setInterval(() => {}, 1000)`);
    await process.stop(50);
    expect(await process.exited).toMatchObject({ signal: 'SIGKILL', expected: true });
  });

  it('ends the children in its group too', async () => {
    const process = await start(FAMILY);
    const child = Number(process.ready?.[1]);
    expect(await findIdentity(child)).toBeDefined();
    await process.stop();
    expect(await findIdentity(child)).toBeUndefined();
  });

  it('tells an exit that nobody asked for', async () => {
    const onExit = jest.fn();
    const process = await start(`console.log('ready'); setInterval(() => {}, 1000)`, { onExit });
    process.kill('SIGKILL');
    await process.exited;
    expect(process.isRunning()).toBe(false);
    expect(onExit).toHaveBeenCalledWith({ code: null, signal: 'SIGKILL', expected: false });
  });

  it('shows the end of the log of one that ends before it is ready', async () => {
    await expect(start(`console.error('no such database'); process.exit(7)`)).rejects.toMatchObject({
      reason: 'process_not_ready',
      message: expect.stringMatching(/worker ended \(exit code 7\).*no such database/s),
    });
  });

  it('shows sentence and cause of JSON log lines', async () => {
    const line = JSON.stringify({ level: 'error', msg: 'margay ends', err: { message: 'no such database' } });
    await expect(start(`console.log(${JSON.stringify(line)}); process.exit(1)`)).rejects.toThrow(
      /: margay ends: no such database$/,
    );
  });

  it('leaves nothing of one that is not ready in time', async () => {
    const ledger = new PidLedger(join(folder.path, 'pids.json'));
    await expect(start('setInterval(() => {}, 1000)', { readyTimeoutMs: 200, ledger })).rejects.toThrow(
      /not ready within 200 ms/,
    );
    expect(await new PidLedger(join(folder.path, 'pids.json')).endLeftovers()).toEqual([]);
  });

  it('names a program that does not exist', async () => {
    const command = {
      name: 'ghost',
      command: join(folder.path, 'ghost'),
      args: [],
      env: {},
      logFile: join(folder.path, 'log'),
      ready: { line: /never said/ },
    };
    await expect(startCommand(command)).rejects.toThrow(/ghost.*(ENOENT|No such file)/s);
  });

  const onLinux = process.platform === 'linux' ? it : it.skip;

  onLinux('ends a process whose launcher was killed', async () => {
    const script = join(folder.path, 'child.cjs');
    await writeFile(script, `console.log('ready ' + process.pid); setInterval(() => {}, 1000)`);
    const [command, args] = await endingWithParent(process.execPath, [script]);
    const launcher = await start(`
      const { spawn } = require('node:child_process');
      spawn(${JSON.stringify(command)}, ${JSON.stringify(args)}, { detached: true, stdio: 'inherit' });
      setInterval(() => {}, 1000);
    `);
    const child = Number(launcher.ready?.[1]);
    expect(await findIdentity(child)).toBeDefined();
    launcher.kill('SIGKILL');
    await launcher.exited;
    while ((await findIdentity(child)) !== undefined) await new Promise((resolve) => setTimeout(resolve, 5));
  });

  it('does not take the ready line of an earlier start for its own', async () => {
    await (await start(`console.log('ready'); setInterval(() => {}, 1000)`)).stop();
    await expect(start(`process.exit(1)`)).rejects.toThrow(/before it was ready/);
  });
});

describe('pid ledger', () => {
  let folder: Awaited<ReturnType<typeof temporaryFolder>>;

  beforeEach(async () => {
    folder = await temporaryFolder();
  });
  afterEach(() => folder.remove());

  it('ends what an earlier launcher left, and no other process with a recorded number', async () => {
    const file = join(folder.path, 'pids.json');
    const entry = join(folder.path, 'script.cjs');
    await writeFile(entry, `console.log('ready'); setInterval(() => {}, 1000)`);
    const left = await startProcess({ name: 'left', entry, readyLine: /ready/, logFile: join(folder.path, 'log') });
    try {
      const identity = await findIdentity(left.pid);
      const recorded = [
        { name: 'left', pid: left.pid, identity },
        { name: 'reused', pid: process.pid, identity: 'of somebody else' },
      ];
      await writeFile(file, JSON.stringify(recorded));
      expect(await new PidLedger(file).endLeftovers()).toEqual(['left']);
      expect(await left.exited).toMatchObject({ signal: 'SIGTERM', expected: false });
    } finally {
      await left.stop(0);
    }
  });
});
