import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { GitRemotes } from './git-remotes';

let folder: string;
let proxy: Server;
let asked: string[];
let remotes: GitRemotes | undefined;

beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'margay-remotes-'));
  asked = [];
  proxy = createServer((request, response) => {
    asked.push(`${request.url} ${request.headers['proxy-authorization'] ?? '-'}`);
    response.end('git.example\nbad host\ncode.example:8443\n');
  });
});
afterEach(() => {
  remotes?.stop();
  proxy.close();
  rmSync(folder, { recursive: true });
});

const file = () => path.join(folder, 'git', 'gitconfig');

async function untilWritten(): Promise<string> {
  while (!existsSync(file())) await delay(10);
  return readFileSync(file(), 'utf8');
}

/** Where git would really go. */
function urlFor(address: string): string {
  const env = { PATH: '/usr/local/bin:/usr/bin:/bin', HOME: folder, ...remotes?.environment };
  return execFileSync('git', ['ls-remote', '--get-url', address], { cwd: folder, env, encoding: 'utf8' }).trim();
}

describe('addresses of ssh', () => {
  it('become https for the hosts that the proxy names', async () => {
    const socketFile = path.join(folder, 'p');
    await new Promise<void>((resolve) => proxy.listen(socketFile, resolve));
    remotes = new GitRemotes({ socketFile }, path.join(folder, 'git'));
    expect(urlFor('git@git.example:team/site.git')).toBe('git@git.example:team/site.git');
    remotes.start();
    remotes.start();
    expect(await untilWritten()).not.toContain('bad host');
    expect(urlFor('git@git.example:team/site.git')).toBe('https://git.example/team/site.git');
    expect(urlFor('ssh://git@git.example/team/site.git')).toBe('https://git.example/team/site.git');
    expect(urlFor('git@code.example:team/site.git')).toBe('https://code.example:8443/team/site.git');
    expect(urlFor('git@other.example:team/site.git')).toBe('git@other.example:team/site.git');
    expect(asked).toEqual(['http://egress.margay/git-hosts -']);
  });

  it('are asked for with the name and token of the sandbox, where there are some', async () => {
    await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve));
    const { port } = proxy.address() as AddressInfo;
    remotes = new GitRemotes({ url: `http://b1:to%2Fken@127.0.0.1:${port}` }, path.join(folder, 'git'));
    remotes.start();
    await untilWritten();
    expect(asked).toEqual([`http://egress.margay/git-hosts Basic ${btoa('b1:to/ken')}`]);
  });

  it('are left alone where there is no proxy', () => {
    remotes = new GitRemotes({}, folder);
    remotes.start();
    expect(remotes.environment).toEqual({});
  });
});
