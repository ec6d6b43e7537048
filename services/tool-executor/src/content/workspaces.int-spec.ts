import { createHash, randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { connect, createServer, type Server } from 'node:net';
import { spawnSync } from 'node:child_process';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { ContentSource, RunGrant, SandboxView, WorkspaceView } from '@margay/contracts';
import { openStore, TEST_SOURCES, type OpenStore } from '@margay/launcher';
import { createLogger } from '@margay/platform';
import { MongoConnection } from '@margay/platform/mongo';
import { GitHost } from '@margay/testing';
import { ExecutorFixture, nothingHeard } from '../executor-fixture';
import type { WorkspaceDocument } from './workspace-document';

const canBox =
  process.getuid?.() === 0 && spawnSync('bwrap', ['--unshare-all', '--ro-bind', '/', '/', 'true']).status === 0;
const boxed = canBox ? it : it.skip;
const DAY_MS = 24 * 3_600_000;

/** Stands in for the egress proxy: tunnels to this machine are opened if they may be. */
class Relay {
  readonly hosts: string[] = [];
  mayPass = true;
  private readonly server: Server;

  constructor() {
    this.server = createServer((socket) => {
      socket.on('error', () => undefined);
      socket.once('data', (first: Buffer) => {
        // The line that says who asks may come with the request, or before it.
        const text = first.toString();
        if (text.includes('CONNECT ')) this.tunnel(socket, text);
        else socket.once('data', (next: Buffer) => this.tunnel(socket, next.toString()));
      });
    });
  }

  listen(file: string): Promise<void> {
    return new Promise((resolve) => this.server.listen(file, resolve));
  }

  close(): Promise<unknown> {
    return new Promise((resolve) => this.server.close(resolve));
  }

  private tunnel(socket: import('node:net').Socket, text: string): void {
    const [, host = '', port = ''] = /CONNECT ([^:]+):(\d+)/.exec(text) ?? [];
    this.hosts.push(host);
    if (!this.mayPass) return void socket.end('HTTP/1.1 403 Forbidden\r\nX-Margay-Egress: egress_denied\r\n\r\n');
    const to = connect(Number(port), '127.0.0.1', () => {
      socket.write('HTTP/1.1 200 OK\r\n\r\n');
      socket.pipe(to).pipe(socket);
    });
    to.on('error', () => socket.destroy());
    socket.on('close', () => to.destroy());
  }
}

describe('workspaces', () => {
  const folder = mkdtempSync(path.join(tmpdir(), 'margay-workspaces-'));
  const database = `spec_${randomBytes(6).toString('hex')}`;
  const relay = new Relay();
  let host: GitHost;
  let store: OpenStore;
  let mongo: MongoConnection;
  let fixture: ExecutorFixture;

  const templates = path.join(folder, 'templates.yaml');
  const environment = (): Record<string, string> => ({
    MARGAY_MONGODB_URL: store.url,
    MARGAY_MONGODB_DATABASE: database,
    MARGAY_EGRESS_LOCAL_SOCKET: path.join(folder, 'relay.sock'),
    MARGAY_EGRESS_CA_FILE: host.caFile,
    MARGAY_WORKSPACE_TEMPLATES_FILE: templates,
    MARGAY_WORKSPACE_SWEEP_SECONDS: '0.3',
    MARGAY_WORKSPACE_SESSION_DAYS_BY_TENANT: '{"t-brief": 1}',
  });

  beforeAll(async () => {
    host = await new GitHost().start();
    await relay.listen(path.join(folder, 'relay.sock'));
    mkdirSync(path.join(folder, 'store'));
    store = await openStore({ directory: path.join(folder, 'store'), allow: TEST_SOURCES });
    mongo = new MongoConnection({ url: store.url, database, logger: createLogger({ level: 'off' }), name: 'spec' });
    await mongo.ready(30_000);
    host.make('offered', { 'from-template.txt': 'offered' });
    const archive = tarOf('from-blob.txt', 'kept');
    const blob = createHash('sha256').update(archive).digest('hex');
    writeFileSync(
      templates,
      JSON.stringify({
        templates: [
          { name: 'shop', url: urlOf('offered') },
          { name: 'stored', blob },
        ],
      }),
    );
    fixture = await new ExecutorFixture().start(environment());
  }, 600_000);
  afterAll(async () => {
    await fixture?.remove();
    await relay.close();
    await mongo?.connection.dropDatabase();
    await mongo?.close();
    await store?.stop();
    await host?.stop();
    rmSync(folder, { recursive: true, force: true });
  });
  afterEach(() => (relay.mayPass = true));

  const urlOf = (name: string) => host.url(name, 'git.example.com');
  const ada = () => fixture.as('user:ada');
  const admin = () => fixture.as('user:eve', 'admin');
  const newId = () => randomBytes(16).toString('hex');
  const rows = () => {
    const { db } = mongo.connection;
    if (!db) throw new Error('the store is not connected');
    return db.collection<WorkspaceDocument>('workspaces');
  };
  const parsed = ({ workspaceJson }: { workspaceJson: string }) => JSON.parse(workspaceJson) as WorkspaceView;
  const get = async (workspaceId: string, as = ada()) => parsed(await fixture.workspaces.get({ workspaceId }, as));

  async function declare(
    content: ContentSource | { kind: string },
  ): Promise<{ id: string; projectId: string; grant: Partial<RunGrant> }> {
    const projectId = newId();
    const request = { projectId, owner: 'user:ada', sourceJson: JSON.stringify(content) };
    const { workspaceId: id } = await fixture.workspacesOfSession.declare(request, fixture.principal);
    return {
      id,
      projectId,
      grant: { sessionId: newId(), owner: 'user:ada', workspace: { kind: 'project', projectId } },
    };
  }

  async function upload(
    workspaceId: string,
    filename: string,
    bytes: Buffer,
    more: { replace?: boolean; as?: ReturnType<typeof ada> } = {},
  ) {
    async function* pieces() {
      yield { workspaceId, filename, replace: more.replace ?? false, content: bytes.subarray(0, 100) };
      for (let at = 100; at < bytes.length; at += 60_000)
        yield { workspaceId: '', filename: '', replace: false, content: bytes.subarray(at, at + 60_000) };
    }
    return parsed(await fixture.workspaces.upload(pieces(), more.as ?? ada()));
  }

  const out = async (command: string, grant: Partial<RunGrant>): Promise<string> => {
    const { result } = await fixture.shell(command, grant);
    return String(result['stdout'] ?? result['text']).trim();
  };

  async function until(isTrue: () => Promise<boolean>): Promise<void> {
    while (!(await isTrue())) await delay(20);
  }

  describe('that begin with a clone', () => {
    boxed('have it before the first call, through the egress proxy, and show its commit', async () => {
      const head = host.make('shop', { 'README.md': 'a shop\n' });
      const { id, grant } = await declare({ kind: 'clone', url: urlOf('shop') });
      expect((await get(id)).content).toMatchObject({ kind: 'clone', status: 'pending', head: null });
      expect(await fixture.metrics).toMatch(/^margay_workspaces\{state="new"\} [1-9]/m);
      const heard = await fixture.shell('cat README.md; git log --format=%H; git status --short', grant);
      expect(String(heard.result['stdout']).trim().split('\n')).toEqual(['a shop', head]);
      expect((await get(id)).content).toMatchObject({ status: 'ready', head, source: { url: urlOf('shop') } });
      expect(relay.hosts).toContain('git.example.com');
    });

    boxed('are cloned once, by one of many sandboxes', async () => {
      host.make('busy', { a: 'x'.repeat(100_000) });
      const { id, grant } = await declare({ kind: 'clone', url: urlOf('busy') });
      const sessions = [newId(), newId(), newId()];
      const seen = await Promise.all(sessions.map((sessionId) => out('cat a | wc -c', { ...grant, sessionId })));
      expect(seen).toEqual(['100000', '100000', '100000']);
      expect(await rows().findOne({ _id: id })).toMatchObject({ contentAttempt: 1, content: { status: 'ready' } });
    });

    boxed('answer calls with the reason where that fails, until the content is begun anew', async () => {
      host.make('closed', { a: '1' });
      relay.mayPass = false;
      const { id, grant } = await declare({ kind: 'clone', url: urlOf('closed') });
      const failed = {
        code: 'FAILED_PRECONDITION',
        reason: 'content_failed',
        message: expect.stringContaining('egress_denied'),
      };
      await expect(fixture.shell('true', grant)).rejects.toMatchObject(failed);
      await expect(fixture.shell('true', grant)).rejects.toMatchObject(failed);
      expect((await get(id)).content).toMatchObject({ status: 'failed', reason: 'egress_denied' });
      expect((await rows().findOne({ _id: id }))?.contentAttempt).toBe(1);
      relay.mayPass = true;
      const sourceJson = JSON.stringify({ kind: 'clone', url: urlOf('closed') });
      await fixture.workspaces.setContent({ workspaceId: id, sourceJson, replace: false }, ada());
      expect(await out('cat a', grant)).toBe('1');
    });

    boxed('tell a call that waits what is being done', async () => {
      host.make('slow', { a: '1' });
      const { grant } = await declare({ kind: 'clone', url: urlOf('slow') });
      host.hold();
      const heard = nothingHeard();
      const call = fixture.shell('cat a', grant, {}, heard);
      await until(async () => heard.waits.some(({ reason, message }) => reason === 'content' && message === 'cloning'));
      host.letGo();
      expect((await call).result['stdout']).toBe('1');
    });

    boxed('are gone on with after a crash, from what the sandbox had done', async () => {
      const head = host.make('crash', { a: '1\n' });
      const { id, grant } = await declare({ kind: 'clone', url: urlOf('crash') });
      expect(await out('cat a', grant)).toBe('1');
      // As it is when the process dies between the sandbox's answer and the store.
      await rows().updateOne(
        { _id: id },
        { $set: { 'content.status': 'running', 'content.owner': 'gone', 'content.until': new Date(Date.now() - 1) } },
      );
      expect(await out('echo 2 >> a; cat a', { ...grant, sessionId: newId() })).toBe('1\n2');
      const row = await rows().findOne({ _id: id });
      expect(row).toMatchObject({ contentAttempt: 2, content: { status: 'ready', head } });
    });
  });

  describe('that begin with an upload', () => {
    it('wait for it, and unpack it', async () => {
      const { id, grant } = await declare({ kind: 'upload' });
      await expect(fixture.shell('true', grant)).rejects.toMatchObject({
        message: expect.stringContaining('upload_missing'),
      });
      const view = await upload(id, 'shop.tar', tarOf('docs/a.txt', 'unpacked'));
      expect(view.content).toMatchObject({
        kind: 'upload',
        status: 'pending',
        source: { format: 'tar', filename: 'shop.tar' },
      });
      expect(await out('cat docs/a.txt', grant)).toBe('unpacked');
      // The store does not keep what the workspace has.
      expect(
        await mongo.connection.db?.collection('workspaceUploads.files').countDocuments({ 'metadata.workspaceId': id }),
      ).toBe(0);
    });

    it('take a single file, larger than one message', async () => {
      const { id, grant } = await declare({ kind: 'upload' });
      const bytes = randomBytes(9 * 1024 * 1024);
      await upload(id, 'data.bin', bytes);
      expect(await out('sha256sum data.bin', grant)).toContain(createHash('sha256').update(bytes).digest('hex'));
    });

    it('answer calls with what is wrong with it', async () => {
      const { id, grant } = await declare({ kind: 'upload' });
      await upload(id, 'evil.tar', tarOf('../out', 'x'));
      await expect(fixture.shell('true', grant)).rejects.toMatchObject({
        reason: 'content_failed',
        message: expect.stringContaining('unsafe_archive'),
      });
      expect((await get(id)).content).toMatchObject({ status: 'failed', reason: 'unsafe_archive' });
    });

    it('replace the files of one in use only where that is asked for', async () => {
      const { id, grant } = await declare({ kind: 'empty' });
      expect(await out('cat CLAUDE.md | head -1; echo mine > own', grant)).toBe('# About this project');
      await expect(upload(id, 'a.tar', tarOf('a', '1'))).rejects.toMatchObject({ reason: 'workspace_in_use' });
      await upload(id, 'a.tar', tarOf('a', '1'), { replace: true });
      expect(await out('ls', grant)).toBe('a');
    });

    it.each(['', '../a.tar', 'a/b.tar', 'a\nb.tar'])('refuse an empty body, and the name %j', async (filename) => {
      const { id } = await declare({ kind: 'upload' });
      await expect(upload(id, filename, filename === '' ? Buffer.alloc(0) : Buffer.from('x'))).rejects.toMatchObject({
        reason: 'bad_request',
      });
    });
  });

  describe('that begin with a template', () => {
    boxed('have what the operator offers, by address', async () => {
      const { grant } = await declare({ kind: 'template', name: 'shop' });
      expect(await out('cat from-template.txt', grant)).toBe('offered');
    });

    it('have what the operator offers, by archive, which stays in the store', async () => {
      const { id: source, grant: first } = await declare({ kind: 'upload' });
      await upload(source, 'template.tar', tarOf('from-blob.txt', 'kept'));
      expect(await out('cat from-blob.txt', first)).toBe('kept');
      for (const _ of [1, 2]) {
        const { grant } = await declare({ kind: 'template', name: 'stored' });
        expect(await out('cat from-blob.txt', grant)).toBe('kept');
      }
    });

    it('are refused where there is none of the name', async () => {
      await expect(declare({ kind: 'template', name: 'nothing' })).rejects.toMatchObject({
        reason: 'unknown_template',
      });
    });
  });

  describe('that begin with a snapshot', () => {
    const take = async (workspaceId: string) => {
      const { snapshotJson } = await fixture.snapshots.takeSnapshot({ workspaceId }, ada());
      return (JSON.parse(snapshotJson) as { snapshot_id: string }).snapshot_id;
    };
    const worksIn = (sessionId: string, owner = 'user:ada') => ({ sessionId, owner });
    const idOf = async (sessionId: string) => (await rows().findOne({ key: `s/${sessionId}` }))?._id ?? '';
    const fork = (from: string, to: string, as = fixture.principal) =>
      fixture.snapshotsOfSession.forkWorkspace({ fromSessionId: from, toSessionId: to, owner: 'user:ada' }, as);

    it('have the files that another project had then', async () => {
      const { id, grant } = await declare({ kind: 'empty' });
      await out('mkdir a; echo then > a/file; chmod 640 a/file', grant);
      const snapshot = await take(id);
      await out('echo later > a/file', grant);
      const other = await declare({ kind: 'template', snapshot });
      expect(await out('cat a/file; stat -c %a a/file', other.grant)).toBe('then\n640');
      expect((await get(other.id)).content).toMatchObject({ kind: 'template', status: 'ready', source: { snapshot } });
      await out('echo mine > a/file', other.grant);
      expect(await take(other.id)).toBe(`${other.id}/1`);
      expect(await out('cat a/file', grant)).toBe('later');
    }, 180_000);

    it('are refused where it is none of a project of the tenant', async () => {
      const sessionId = newId();
      await out('echo private > file', worksIn(sessionId));
      const own = await take(await idOf(sessionId));
      const { id } = await declare({ kind: 'empty' });
      for (const snapshot of [own, `${'f'.repeat(32)}/1`, `${id}/7`])
        await expect(declare({ kind: 'template', snapshot })).rejects.toMatchObject({ reason: 'unknown_template' });
      for (const wrong of [{}, { name: 'shop', snapshot: own }, { snapshot: '../1' }])
        await expect(declare({ kind: 'template', ...wrong })).rejects.toMatchObject({ reason: 'bad_request' });
    }, 180_000);

    it('fail where that is gone', async () => {
      const { id, grant } = await declare({ kind: 'empty' });
      await out('true', grant);
      const late = await declare({ kind: 'template', snapshot: await take(id) });
      await fixture.workspaces.delete({ workspaceId: id, ifMatch: '' }, ada());
      await until(async () => (await rows().findOne({ _id: id }))?.state === 'deleted');
      await expect(fixture.shell('true', late.grant)).rejects.toMatchObject({
        reason: 'content_failed',
        message: expect.stringContaining('template_missing'),
      });
    }, 180_000);

    it('are those of forks: a session without a project goes on with what the other one had', async () => {
      const [from, to] = [newId(), newId()];
      await out('echo then > file; ln -s file link', worksIn(from));
      const { workspaceId } = await fork(from, to);
      await out('echo later > file', worksIn(from));
      expect(await fork(from, to)).toEqual({ workspaceId });
      expect(workspaceId).toBe(await idOf(to));
      expect(await get(workspaceId ?? '')).toMatchObject({ kind: 'session', belongs_to: to });
      expect(await out('cat link; echo mine >> file', worksIn(to))).toBe('then');
      expect(await out('cat file', worksIn(from))).toBe('later');
      expect(await take(workspaceId ?? '')).toBe(`${workspaceId}/2`);
      const next = newId();
      await fork(to, next);
      expect(await out('cat file', worksIn(next))).toBe('then\nmine');
    }, 180_000);

    it('are none where a session has no files, and nobody but session forks them', async () => {
      expect(await fork(newId(), newId())).toEqual({ workspaceId: undefined });
      const request = { fromSessionId: newId(), toSessionId: newId(), owner: 'user:ada' };
      await expect(fixture.snapshots.forkWorkspace(request, ada())).rejects.toMatchObject({ reason: 'session_only' });
    });
  });

  describe('are shown', () => {
    it('to their owners, those of projects to their tenant, and to nobody else', async () => {
      const { id: shared } = await declare({ kind: 'empty' });
      const sessionId = newId();
      await out('true', { sessionId, owner: 'user:ada' });
      const own = await rows().findOne({ key: `s/${sessionId}` });
      const id = own?._id ?? '';
      expect(await get(id)).toMatchObject({
        kind: 'session',
        belongs_to: sessionId,
        owner: 'user:ada',
        state: 'new',
        content: null,
      });
      const bob = fixture.as('user:bob');
      for (const [workspaceId, as] of [
        [id, bob],
        [id, fixture.as('user:ada', 'owner', 't2')],
        [shared, fixture.as('user:ada', 'owner', 't2')],
        ['nothing', ada()],
      ] as const)
        await expect(fixture.workspaces.get({ workspaceId }, as)).rejects.toMatchObject({
          reason: 'workspace_not_found',
        });
      expect((await get(id, admin())).workspace_id).toBe(id);
      const listed = async (as: ReturnType<typeof ada>) => {
        const { workspacesJson } = await fixture.workspaces.list({ limit: 200, cursor: '' }, as);
        return workspacesJson.map((json) => (JSON.parse(json) as WorkspaceView).workspace_id);
      };
      expect(await listed(ada())).toEqual(expect.arrayContaining([id, shared]));
      expect((await listed(bob)).includes(id)).toBe(false);
      expect(await listed(bob)).toContain(shared);
      expect(await listed(fixture.as('user:ada', 'owner', 't2'))).toEqual([]);
      await expect(fixture.workspaces.delete({ workspaceId: shared, ifMatch: '' }, bob)).rejects.toMatchObject({
        reason: 'permission_denied',
      });
    });

    it('in pages without a gap, whatever is added meanwhile', async () => {
      const tenant = { principal: { ...fixture.principal.principal, tenantId: 't-pages' } };
      const made: string[] = [];
      for (let left = 5; left > 0; left -= 1) {
        const request = { projectId: newId(), owner: 'user:ada', sourceJson: '{"kind":"empty"}' };
        made.unshift((await fixture.workspacesOfSession.declare(request, tenant)).workspaceId);
      }
      const as = fixture.as('user:ada', 'owner', 't-pages');
      const seen: string[] = [];
      for (let cursor = '', first = true; first || cursor !== ''; first = false) {
        const page = await fixture.workspaces.list({ limit: 2, cursor }, as);
        seen.push(...page.workspacesJson.map((json) => (JSON.parse(json) as WorkspaceView).workspace_id));
        cursor = page.nextCursor;
        await fixture.workspacesOfSession.declare(
          { projectId: newId(), owner: 'x', sourceJson: '{"kind":"empty"}' },
          tenant,
        );
      }
      expect(seen.toSorted()).toEqual(made.toSorted());
      await expect(fixture.workspaces.list({ limit: 2, cursor: 'made-up' }, as)).rejects.toMatchObject({
        reason: 'bad_cursor',
      });
    });

    it('with the sandboxes on them, which administrators may end', async () => {
      const sessionId = newId();
      await out('true', { sessionId, owner: 'user:ada' });
      const { sandboxesJson } = await fixture.workspaces.listSandboxes({}, ada());
      const sandbox = sandboxesJson
        .map((json) => JSON.parse(json) as SandboxView)
        .find((one) => one.session_id === sessionId);
      expect(sandbox).toMatchObject({
        state: 'ready',
        driver: 'process',
        workspace_id: expect.stringMatching(/^[0-9a-f]{32}$/),
      });
      const sandboxId = sandbox?.sandbox_id ?? '';
      const foreign = fixture.as('user:ada', 'owner', 't2');
      await expect(fixture.workspaces.getSandbox({ sandboxId }, foreign)).rejects.toMatchObject({
        reason: 'sandbox_not_found',
      });
      await expect(fixture.workspaces.endSandbox({ sandboxId }, foreign)).rejects.toMatchObject({
        reason: 'sandbox_not_found',
      });
      await expect(fixture.workspaces.endSandbox({ sandboxId }, ada())).rejects.toMatchObject({
        reason: 'permission_denied',
      });
      await fixture.workspaces.endSandbox({ sandboxId }, admin());
      const ended = JSON.parse((await fixture.workspaces.getSandbox({ sandboxId }, ada())).sandboxJson) as SandboxView;
      expect(ended.state).toBe('released');
    });
  });

  describe('are deleted', () => {
    const folderOf = (name: string) => path.join(fixture.home, 'workspaces', name);
    const isGone = (id: string) => until(async () => (await rows().findOne({ _id: id }))?.state === 'deleted');

    it('with their sandboxes and files, dirty names and all, and leave a tombstone', async () => {
      const { id, projectId, grant } = await declare({ kind: 'empty' });
      await out(
        `touch "$(printf 'not\\xff text')" "$(printf 'line\\nbreak')"; mkdir -p closed/in; touch closed/in/a; chmod 0 closed`,
        grant,
      );
      const view = parsed(await fixture.workspaces.delete({ workspaceId: id, ifMatch: '' }, ada()));
      expect(view.state).toBe('deleting');
      await isGone(id);
      expect(existsSync(folderOf(`p-${projectId}`))).toBe(false);
      expect(readdirSync(folderOf('')).filter((name) => name.startsWith('.gone'))).toEqual([]);
      const { expiresAt, deletedAt, ...row } = (await rows().findOne({ _id: id })) as WorkspaceDocument;
      expect((expiresAt?.getTime() ?? 0) - (deletedAt?.getTime() ?? 0)).toBe(30 * DAY_MS);
      expect(row.content).toBeUndefined();
      await expect(get(id)).rejects.toMatchObject({ reason: 'workspace_not_found' });
      const { sandboxesJson } = await fixture.workspaces.listSandboxes({}, ada());
      expect(sandboxesJson.join()).not.toContain(grant.sessionId);
      // Whoever works there again begins with nothing.
      expect(await out('ls -A', grant)).not.toContain('closed');
      expect((await rows().findOne({ _id: id }))?.state).toBe('new');
    });

    it('and take nobody in meanwhile', async () => {
      const { id, grant } = await declare({ kind: 'empty' });
      await out('touch a', grant);
      await rows().updateOne({ _id: id }, { $set: { state: 'deleting', legalHold: true } });
      await expect(fixture.shell('true', { ...grant, sessionId: newId() })).rejects.toMatchObject({
        reason: 'workspace_deleting',
      });
      expect(await get(id)).toMatchObject({ state: 'deleting' });
      await rows().updateOne({ _id: id }, { $unset: { legalHold: '' } });
      await isGone(id);
    });

    it('not while they are held', async () => {
      const { id } = await declare({ kind: 'empty' });
      const hold = (legalHold: boolean, as = admin()) =>
        fixture.workspaces.update({ workspaceId: id, legalHold, ifMatch: '' }, as);
      await expect(hold(true, ada())).rejects.toMatchObject({ reason: 'permission_denied' });
      expect(parsed(await hold(true))).toMatchObject({ legal_hold: true });
      await expect(fixture.workspaces.delete({ workspaceId: id, ifMatch: '' }, admin())).rejects.toMatchObject({
        reason: 'legal_hold',
      });
      // Nor is everything that lies there to be replaced.
      const anew = { workspaceId: id, sourceJson: '{"kind":"empty"}', replace: true };
      for (const refused of [
        fixture.workspaces.setContent(anew, ada()),
        upload(id, 'a.tar', tarOf('a', '1'), { replace: true }),
        fixture.snapshots.restoreSnapshot({ workspaceId: id }, ada()),
        fixture.snapshots.relocate({ workspaceId: id }, ada()),
      ])
        await expect(refused).rejects.toMatchObject({ reason: 'legal_hold' });
      await rows().updateOne({ _id: id }, { $set: { retainUntil: new Date(0) } });
      await delay(700);
      expect((await rows().findOne({ _id: id }))?.state).toBe('new');
      await hold(false);
      await isGone(id);
    });

    it('only as they were seen', async () => {
      const { id } = await declare({ kind: 'empty' });
      const { rev } = await get(id);
      await expect(
        fixture.workspaces.delete({ workspaceId: id, ifMatch: `"${rev + 1}"` }, ada()),
      ).rejects.toMatchObject({ reason: 'rev_moved' });
      await fixture.workspaces.delete({ workspaceId: id, ifMatch: `"${rev}"` }, ada());
      await isGone(id);
    });

    it('when their time is over: of sessions after their last use, of projects after the end of the project', async () => {
      const sessionId = newId();
      await out('touch a', { sessionId, owner: 'user:ada' });
      const brief = newId();
      const [own, other] = [`s/${sessionId}`, `s/${brief}`];
      const { id: shared, projectId } = await declare({ kind: 'empty' });
      const used = (days: number) => new Date(Date.now() - days * DAY_MS);
      await rows().updateOne({ key: own }, { $set: { lastUsedAt: used(29) } });
      await rows().insertOne({
        ...((await rows().findOne({ key: own })) as WorkspaceDocument),
        _id: newId(),
        tenantId: 't-brief',
        key: other,
        lastUsedAt: used(2),
      });
      await rows().updateOne({ _id: shared }, { $set: { lastUsedAt: used(400) } });
      await until(async () => (await rows().findOne({ key: other }))?.state === 'deleted');
      expect((await rows().findOne({ key: own }))?.state).toBe('new');
      expect((await rows().findOne({ _id: shared }))?.state).toBe('new');
      await rows().updateOne({ key: own }, { $set: { lastUsedAt: used(31) } });
      await until(async () => (await rows().findOne({ key: own }))?.state === 'deleted');
      expect(existsSync(folderOf(sessionId))).toBe(false);
      await fixture.workspacesOfSession.retire({ projectId }, fixture.principal);
      const { expires_at } = await get(shared);
      expect(Math.round((Date.parse(expires_at ?? '') - Date.now()) / DAY_MS)).toBe(30);
      await fixture.workspacesOfSession.retire({ projectId }, fixture.principal);
      expect((await get(shared)).expires_at).toBe(expires_at);
      await rows().updateOne({ _id: shared }, { $set: { retainUntil: new Date(0) } });
      await isGone(shared);
    });
  });
});

/** An archive of one file. */
function tarOf(name: string, text: string): Buffer {
  const header = Buffer.alloc(512);
  header.write(name, 0);
  header.write('0000644\0', 100);
  header.write('0000000\0', 108);
  header.write('0000000\0', 116);
  header.write(`${text.length.toString(8).padStart(11, '0')}\0`, 124);
  header.write('00000000000\0', 136);
  header.write('        ', 148);
  header.write('0', 156);
  header.write('ustar\0', 257);
  header.write('00', 263);
  header.write(
    `${header
      .reduce((sum, byte) => sum + byte, 0)
      .toString(8)
      .padStart(6, '0')}\0 `,
    148,
  );
  const body = Buffer.alloc(Math.ceil(text.length / 512) * 512);
  body.write(text);
  return Buffer.concat([header, body, Buffer.alloc(1_024)]);
}
