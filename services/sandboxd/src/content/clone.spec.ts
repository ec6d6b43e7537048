import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { ContentOrder } from '@margay/contracts';
import { GitHost } from '@margay/testing';
import { Content } from './content';

describe('a clone', () => {
  let host: GitHost;
  let base: string;
  let attempt = 0;

  beforeAll(async () => (host = await new GitHost().start()));
  afterAll(() => host.stop());
  beforeEach(() => {
    base = mkdtempSync(path.join(tmpdir(), 'margay-clone-'));
    mkdirSync(path.join(base, 'ws'));
    mkdirSync(path.join(base, 'home'));
  });
  afterEach(() => {
    delete host.refusal;
    host.letGo();
    rmSync(base, { recursive: true, force: true });
  });

  const inside = (name: string) => path.join(base, 'ws', name);

  function contentWith(environment: Record<string, string> = {}, isBoxed = false): Content {
    const usual = { PATH: process.env['PATH'] ?? '', HOME: path.join(base, 'home'), GIT_SSL_CAINFO: host.caFile };
    return new Content({ root: path.join(base, 'ws'), environment: { ...usual, ...environment }, isBoxed });
  }

  async function bring(
    url: string,
    more: Partial<Extract<ContentOrder, { kind: 'clone' }>> = {},
    { content = contentWith(), id = 'aaaaaaaa', signal = new AbortController().signal, maxBytes = 1e9 } = {},
  ) {
    const order: ContentOrder = { kind: 'clone', url, submodules: false, lfs: false, ...more };
    attempt += 1;
    const orderJson = JSON.stringify(order);
    const doing: string[] = [];
    const request = { contentId: id, attempt, orderJson, replace: false, maxBytes, timeoutMs: 20_000 };
    return { ...(await content.bring(request, signal, (step) => doing.push(step))), doing };
  }

  it('brings the files and the history into the workspace, and tells the commit', async () => {
    const head = host.make('shop', { 'README.md': 'a shop', 'src/main.ts': 'x' });
    const end = await bring(host.url('shop'));
    expect(end).toMatchObject({ status: 'ready', head });
    expect(end.doing).toContain('cloning');
    expect(readFileSync(inside('src/main.ts'), 'utf8')).toBe('x');
    expect(readdirSync(path.join(base, 'ws')).sort()).toEqual(['.git', '.margay', 'README.md', 'src']);
    expect(readdirSync(inside('.margay')).sort()).toEqual(['.gitignore', 'content', 'content.json']);
    expect(readdirSync(inside('.margay/content'))).toEqual([]);
  });

  it('takes a branch, a tag or a commit, and as many commits as are asked for', async () => {
    const first = host.make('refs', { a: '1' });
    host.commit('refs', { a: '2' });
    host.inWork('refs', 'push', '-q', path.join(host.folder, 'served/refs'), `${first}:refs/tags/v1`);
    expect(await bring(host.url('refs'), { ref: 'v1' })).toMatchObject({ status: 'ready', head: first });
    rmSync(path.join(base, 'ws'), { recursive: true });
    mkdirSync(path.join(base, 'ws'));
    const shallow = await bring(host.url('refs'), { ref: first, depth: 1 }, { id: 'bbbbbbbb' });
    expect(shallow).toMatchObject({ status: 'ready', head: first });
    expect(readFileSync(inside('a'), 'utf8')).toBe('1');
    expect(existsSync(inside('.git/shallow'))).toBe(true);
  });

  it('brings submodules, by https too', async () => {
    host.make('part', { 'part.txt': 'p' });
    host.make('whole', {
      'whole.txt': 'w',
      '.gitmodules': `[submodule "part"]\n\tpath = part\n\turl = ${host.url('part')}\n`,
    });
    const commit = host.inWork('part', 'rev-parse', 'HEAD').trim();
    host.inWork('whole', 'update-index', '--add', '--cacheinfo', `160000,${commit},part`);
    host.inWork('whole', 'commit', '-q', '-m', 'part');
    host.inWork('whole', 'push', '-q', path.join(host.folder, 'served/whole'), 'HEAD:main');
    expect(await bring(host.url('whole'), { submodules: true })).toMatchObject({ status: 'ready' });
    expect(readFileSync(inside('part/part.txt'), 'utf8')).toBe('p');
  });

  it('refuses submodules that lead into the machine', async () => {
    host.make('inward', { '.gitmodules': `[submodule "x"]\n\tpath = x\n\turl = file://${host.folder}/served/shop\n` });
    const commit = host.inWork('shop', 'rev-parse', 'HEAD').trim();
    host.inWork('inward', 'update-index', '--add', '--cacheinfo', `160000,${commit},x`);
    host.inWork('inward', 'commit', '-q', '-m', 'x');
    host.inWork('inward', 'push', '-q', path.join(host.folder, 'served/inward'), 'HEAD:main');
    const end = await bring(host.url('inward'), { submodules: true });
    expect(end).toMatchObject({ status: 'failed', message: expect.stringMatching(/transport 'file' not allowed/) });
  });

  it('runs no hooks, filters or helpers, whatever was left in the home before', async () => {
    const ran = path.join(base, 'ran');
    const hooks = path.join(base, 'home', 'hooks');
    mkdirSync(hooks);
    for (const hook of ['post-checkout', 'post-merge', 'reference-transaction'])
      writeFileSync(path.join(hooks, hook), `#!/bin/sh\ntouch ${ran}\n`, { mode: 0o755 });
    const template = path.join(base, 'home', 'template');
    mkdirSync(path.join(template, 'hooks'), { recursive: true });
    writeFileSync(path.join(template, 'hooks', 'post-checkout'), `#!/bin/sh\ntouch ${ran}\n`, { mode: 0o755 });
    writeFileSync(
      path.join(base, 'home', '.gitconfig'),
      [
        `[core]\n\thooksPath = ${hooks}\n\tfsmonitor = touch ${ran}\n\tattributesFile = ${base}/home/attributes`,
        `[init]\n\ttemplateDir = ${template}`,
        `[credential]\n\thelper = "!touch ${ran}"`,
        `[filter "evil"]\n\tsmudge = touch ${ran}; cat\n\tclean = touch ${ran}; cat\n`,
      ].join('\n'),
    );
    writeFileSync(path.join(base, 'home', 'attributes'), '* filter=evil\n');
    host.make('trap', {
      '.gitattributes': '* filter=evil\n',
      file: 'as it is',
      '.githooks/post-checkout': `touch ${ran}`,
    });
    expect(await bring(host.url('trap'))).toMatchObject({ status: 'ready' });
    expect([existsSync(ran), readFileSync(inside('file'), 'utf8')]).toEqual([false, 'as it is']);
    expect(existsSync(inside('.git/hooks/post-checkout'))).toBe(false);
    host.refusal = 401;
    expect(await bring(host.url('trap'), {}, { id: 'bbbbbbbb' })).toMatchObject({ reason: 'auth' });
    expect(existsSync(ran)).toBe(false);
  });

  it.each([
    [401, 'auth'],
    [403, 'auth'],
    [404, 'not_found'],
    [503, 'network'],
  ])('tells %i as %s', async (refusal, reason) => {
    host.make(`refused-${refusal}`, { a: '' });
    host.refusal = refusal;
    expect(await bring(host.url(`refused-${refusal}`))).toMatchObject({ status: 'failed', reason });
  });

  it('tells an unknown repository and branch, an unreachable host, and a policy that refuses', async () => {
    host.make('known', { a: '' });
    expect(await bring(host.url('unknown'))).toMatchObject({ reason: 'not_found' });
    expect(await bring(host.url('known'), { ref: 'nowhere' })).toMatchObject({ reason: 'not_found' });
    expect(await bring('https://localhost:9/x')).toMatchObject({ reason: 'network' });
    // Any server that answers a tunnel with what the egress proxy says.
    const proxy = (await import('node:net')).createServer((socket) =>
      socket.once('data', () => socket.end('HTTP/1.1 403 Forbidden\r\nX-Margay-Egress: egress_denied\r\n\r\n')),
    );
    await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve));
    const url = `http://127.0.0.1:${(proxy.address() as { port: number }).port}`;
    const content = contentWith({ HTTPS_PROXY: url, https_proxy: url, NO_PROXY: '', no_proxy: '' }, true);
    expect(await bring('https://git.example.com/a', {}, { content })).toMatchObject({ reason: 'egress_denied' });
    await new Promise((resolve) => proxy.close(resolve));
    expect(await bring('https://git.example.com/a', {}, { content: contentWith({}, true) })).toMatchObject({
      reason: 'egress_denied',
    });
  });

  it('ends at its time-out, and when the caller leaves', async () => {
    host.make('slow', { a: '' });
    host.hold();
    const order: ContentOrder = { kind: 'clone', url: host.url('slow'), submodules: false, lfs: false };
    const request = { contentId: 'aaaaaaaa', orderJson: JSON.stringify(order), replace: false, maxBytes: 1e9 };
    const content = contentWith();
    attempt += 2;
    const end = await content.bring(
      { ...request, attempt: attempt - 1, timeoutMs: 300 },
      new AbortController().signal,
      () => undefined,
    );
    expect(end).toMatchObject({ status: 'failed', reason: 'timeout' });
    const left = new AbortController();
    const broken = content.bring({ ...request, attempt, timeoutMs: 20_000 }, left.signal, () =>
      left.abort(new Error('left')),
    );
    await expect(broken).rejects.toThrow('left');
    host.letGo();
    expect(await bring(host.url('slow'), {}, { content })).toMatchObject({ status: 'ready' });
  });

  it('does a half clone again, and what is done only once', async () => {
    const head = host.make('again', { a: 'new' });
    // As a crash leaves it in the middle of moving.
    mkdirSync(inside('.margay/content/tree/.git'), { recursive: true });
    writeFileSync(inside('half'), '');
    writeFileSync(
      inside('.margay/content.json'),
      JSON.stringify({ contentId: 'aaaaaaaa', attempt, phase: 'moving', head }),
    );
    expect(await bring(host.url('again'))).toMatchObject({ status: 'ready', head });
    expect([existsSync(inside('half')), existsSync(inside('a'))]).toEqual([false, true]);
    writeFileSync(inside('a'), 'changed');
    expect(await bring(host.url('again'))).toMatchObject({ status: 'ready', head });
    expect(readFileSync(inside('a'), 'utf8')).toBe('changed');
  });

  it('refuses an attempt that a later one has overtaken, and files that are not its own', async () => {
    host.make('late', { a: '' });
    writeFileSync(inside('own work'), '');
    expect(await bring(host.url('late'))).toMatchObject({ status: 'failed', reason: 'not_empty' });
    expect(existsSync(inside('own work'))).toBe(true);
    attempt -= 2;
    await expect(bring(host.url('late'))).rejects.toMatchObject({ reason: 'stale_attempt' });
    attempt += 2;
  });
});
