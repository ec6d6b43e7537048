import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { answer, byConversation, callTools } from '@margay/testing';
import { PlatformHarness } from './harness';

const CANARY = 'canary-4f1c9b';
const hasSandboxes =
  process.getuid?.() === 0 && spawnSync('bwrap', ['--unshare-all', '--ro-bind', '/', '/', 'true']).status === 0;
const suite = hasSandboxes ? describe : describe.skip;

jest.setTimeout(180_000);

suite(`a model that means harm${hasSandboxes ? '' : ' (skipped: needs root and bubblewrap)'}`, () => {
  const margay = new PlatformHarness({ mode: 'combined', env: { MARGAY_CANARY: CANARY } });

  beforeAll(() => margay.start(), 600_000);
  afterAll(() => margay.stop());

  /** Runs commands one after the other; the answer is what the last one said. */
  const scriptCommands = (...commands: string[]): void =>
    margay.script(
      byConversation(({ results, step }) => {
        const command = commands[step];
        return command === undefined
          ? answer(results.at(-1)?.content ?? '')
          : callTools({ name: 'aider_shell_tool', arguments: { command } });
      }),
    );
  const isRunning = (commandLine: string): boolean => spawnSync('pgrep', ['-xf', commandLine]).status === 0;

  it('finds no secret in the environment, the files and the processes it can see, and none is stored', async () => {
    const { home, platform } = margay;
    const port = new URL(platform.gatewayUrl).port;
    scriptCommands(
      `env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr "\\0" "\\n"; find / -xdev -name "*.pem" -not -path "/etc/ssl/*" -not -path "/usr/*" 2>/dev/null | xargs cat`,
      `cat /etc/shadow ${home}/bootstrap.key ${home}/keys/*; ls ${home} ${home}/sandboxes; cat /margay/state/*`,
      `(exec 3<>/dev/tcp/127.0.0.1/${port} && echo $((40 + 2))reached); getent hosts example.com; echo end`,
    );
    const session = await margay.sessionWith({});
    const { text } = await (await session.query('look around')).result();
    expect(text).toContain('end');
    expect(text).not.toContain('42reached');
    const stored = (await margay.storedFrames(session.id)).join('\n');
    expect(stored).toContain('MARGAY_SESSION_ID');
    for (const secret of [CANARY, 'PRIVATE KEY', platform.apiKey, 'root:x:0', 'root:*:'])
      expect(stored).not.toContain(secret);
  });

  it('that kills or stops everything it can reach gets an unknown result, and the run goes on', async () => {
    scriptCommands('echo once >> n; kill -9 -1; kill -9 2', 'cat n; echo alive');
    const session = await margay.sessionWith({});
    const result = await (await session.query('kill')).result();
    expect(result.status).toBe('completed');
    expect(JSON.parse(result.text)).toMatchObject({ stdout: 'once\nalive\n' });
    expect((await margay.storedFrames(session.id)).join('\n')).toContain('"error":"sandbox_lost","outcome":"unknown"');
  });

  it('that stops its daemon does not outlive a cancel', async () => {
    const sleeper = `sleep 7000.${process.pid}`;
    scriptCommands(`kill -STOP 2; setsid env -i ${sleeper}`);
    const session = await margay.sessionWith({});
    const run = await session.query('go');
    while (!isRunning(sleeper)) await delay(50);
    await session.cancel();
    expect((await run.result()).status).toBe('canceled');
    while (isRunning(sleeper)) await delay(100);
    scriptCommands('echo usable');
    expect((await (await session.query('again')).result()).text).toContain('usable');
  });

  it('is refused a folder of root that a request names, in words that say what to do', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'margay-of-root-'));
    try {
      scriptCommands('id');
      const session = await margay.client.sessions.create({ cwd: folder });
      const { text } = await (await session.query('go')).result();
      expect(text).toContain('--workspace-copy');
      expect(statSync(folder).uid).toBe(0);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  it('leaves nothing behind when its session is terminated', async () => {
    const sleeper = `sleep 8000.${process.pid}`;
    scriptCommands(`setsid env -i ${sleeper} >/dev/null 2>&1 & echo kept > ~/kept; echo started`);
    const session = await margay.sessionWith({});
    await (await session.query('go')).result();
    while (!isRunning(sleeper)) await delay(50);
    const record = (await recordsOf(margay.home)).find(({ sessionId }) => sessionId === session.id);
    expect(record).toBeDefined();
    const folder = join(margay.home, 'sandboxes', record?.sandboxId ?? '?');
    const names = ['-name', 'kept', '-o', '-name', 'journal.ndjson'];
    const left = () => spawnSync('find', [folder, ...names], { encoding: 'utf8' }).stdout;
    expect(left()).toMatch(/kept[^]*journal\.ndjson|journal\.ndjson[^]*kept/);
    expect((await margay.request('POST', `/api/sessions/${session.id}/terminate`, {})).status).toBeLessThan(300);
    while (isRunning(sleeper)) await delay(100);
    // Processes end first, then files go.
    while (left() !== '') await delay(100);
  });

  it('leaves no process behind when the platform stops', async () => {
    const sleeper = `sleep 9000.${process.pid}`;
    scriptCommands(`setsid env -i ${sleeper} >/dev/null 2>&1 & echo started`);
    const session = await margay.sessionWith({});
    await (await session.query('go')).result();
    while (!isRunning(sleeper)) await delay(50);
    await margay.platform.stop();
    expect(isRunning(sleeper)).toBe(false);
    expect((await recordsOf(margay.home)).flatMap(({ processes }) => processes)).toEqual([]);
  });
});

async function recordsOf(home: string): Promise<{ sandboxId: string; sessionId: string; processes: object[] }[]> {
  const folder = join(home, 'sandboxes');
  const texts = (await readdir(folder)).map((name) => readFile(join(folder, name, 'record.json'), 'utf8'));
  return (await Promise.all(texts)).map((text) => JSON.parse(text));
}
