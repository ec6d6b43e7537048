import { execFile } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import path from 'node:path';
import { promisify } from 'node:util';
import { GitHost } from '@margay/testing';
import { InterceptFixture } from '../intercept/intercept-fixture';

const CANARY = 'canary-2f9d41c07b';
const run = promisify(execFile);

// Each test starts dozens of processes of git.
let fixture: InterceptFixture;
let host: GitHost;
let environment: Record<string, string>;
let folder: string;

beforeEach(async () => {
  fixture = new InterceptFixture();
  host = await new GitHost({ username: 'robot', token: CANARY }).start();
  host.make('team/site.git', { README: 'hello\n' });
  fixture.names.set('git.example.com', ['127.0.0.1']);
  fixture.credentials.all.set('/team/site', { name: 'git/team', value: CANARY, username: 'robot' });
  await fixture.start(settings(), { MARGAY_EGRESS_TRUST_FILE: host.caFile });
  environment = await sandboxEnvironment();
});
afterEach(async () => {
  await fixture.remove();
  await host.stop();
});

const settings = (push = false) => ({
  private: [{ host: 'git.example.com', cidr: '127.0.0.0/8', ports: [host.port] }],
  policy: {
    rules: [
      { id: 'git', hosts: ['git.example.com'], ports: [host.port], intercept: true, inject: { as: 'basic', push } },
    ],
  },
});

/** What a sandbox has: a proxy at its loopback, the public certificate, and nothing secret. */
async function sandboxEnvironment(): Promise<Record<string, string>> {
  const bridge = createServer((client) => {
    const proxy = fixture.connect();
    client.on('error', () => proxy.destroy());
    client.pipe(proxy).pipe(client);
  });
  const bridgePort = await fixture.serve(bridge);
  folder = path.join(fixture.folder, 'sandbox');
  mkdirSync(folder);
  return {
    PATH: process.env['PATH'] ?? '',
    HOME: folder,
    https_proxy: `http://127.0.0.1:${bridgePort}`,
    GIT_SSL_CAINFO: fixture.caFile,
    GIT_TERMINAL_PROMPT: '0',
    GIT_TRACE_CURL: path.join(folder, 'trace'),
    GIT_TRACE_CURL_NO_DATA: '0',
    GIT_TRACE_REDACT: '0',
  };
}

const git = (cwd: string, ...args: string[]) => run('git', args, { cwd, env: environment });
const url = () => host.url('team/site.git', 'git.example.com');

/** All that lies in a folder, as text. */
function contentOf(root: string): string {
  const entries = readdirSync(root, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile()).map((entry) => path.join(entry.parentPath, entry.name));
  return files.map((file) => `${file}\n${readFileSync(file, 'latin1')}`).join('\n');
}

const spelled = (text: string) => [CANARY, btoa(`robot:${CANARY}`)].filter((form) => text.includes(form));

describe('git behind the proxy', () => {
  it('pain 37: clones by a credential that no environment, file, trace or log ever holds', async () => {
    await git(folder, 'clone', '-q', url(), 'site');
    expect(readFileSync(path.join(folder, 'site', 'README'), 'utf8')).toBe('hello\n');
    expect(host.asked[0]).toMatch(/^robot GET \/team\/site\.git\/info\/refs/);
    // Even what git itself saw on the wire, which its trace has whole.
    const held = contentOf(folder);
    expect(held).toMatch(/info\/refs/);
    expect(spelled(held)).toEqual([]);
    expect(spelled(JSON.stringify(environment))).toEqual([]);
    const { stdout } = await run('sh', ['-c', 'cat /proc/self/environ; env'], { env: environment });
    expect(spelled(stdout)).toEqual([]);
    expect(spelled(fixture.lines.join(''))).toEqual([]);
    expect(spelled(await fixture.metrics())).toEqual([]);
    expect(fixture.audit).toContainEqual(expect.objectContaining({ credential: 'git/team', rule: 'git', status: 200 }));
  });

  it('pushes only where the rule says so', async () => {
    await git(folder, 'clone', '-q', url(), 'site');
    const site = path.join(folder, 'site');
    const before = host.headOf('team/site.git');
    writeFileSync(path.join(site, 'README'), 'changed\n');
    await git(site, '-c', 'user.name=a', '-c', 'user.email=a@example.com', 'commit', '-q', '-am', 'second');
    await expect(git(site, 'push', '-q', 'origin', 'main')).rejects.toMatchObject({
      stderr: expect.stringContaining('403') as string,
    });
    expect(host.headOf('team/site.git')).toBe(before);
    fixture.setPolicy(settings(true));
    while (host.headOf('team/site.git') === before)
      await git(site, 'push', '-q', 'origin', 'main').catch(() => undefined);
  });

  it('says to the host what the tenant is, not what the caller claims to be', async () => {
    const claim = `http.extraHeader=Authorization: Basic ${btoa('mallory:mine')}`;
    await git(folder, '-c', claim, 'clone', '-q', url(), 'site');
    expect(host.asked.filter((line) => !line.startsWith('robot'))).toEqual([]);
  });

  it('is refused a credential that was revoked', async () => {
    fixture.credentials.all.clear();
    await expect(git(folder, 'clone', '-q', url(), 'site')).rejects.toMatchObject({
      stderr: expect.stringMatching(/could not read Username|401|Authentication failed/) as string,
    });
    expect(host.asked.every((line) => line.startsWith('- '))).toBe(true);
  });
});
