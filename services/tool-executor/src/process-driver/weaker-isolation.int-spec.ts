import { existsSync, mkdirSync, readFileSync, readdirSync } from 'node:fs';
import path from 'node:path';
import { spawnSync } from 'node:child_process';
import { chmodSync } from 'node:fs';
import { ExecutorFixture } from '../executor-fixture';

const isRoot = process.getuid?.() === 0;
const suite = isRoot ? describe : describe.skip;

suite(`the process driver as root without bubblewrap${isRoot ? '' : ' (skipped: needs root)'}`, () => {
  let fixture: ExecutorFixture;
  beforeAll(async () => {
    fixture = new ExecutorFixture();
    // The sandbox's user must reach its folders; npm start makes the home so.
    chmodSync(fixture.home, 0o711);
    mkdirSync(fixture.keysFolder, { mode: 0o700 });
    await fixture.start({ MARGAY_SANDBOX_ISOLATION: 'uid' });
    // As in a home directory of root: the daemon is copied to where its user can read it.
    chmodSync(fixture.entry, 0o600);
  });
  afterAll(() => fixture.remove());

  it('drops to a user of its own and keeps secrets of root unreadable', async () => {
    expect(fixture.isolation).toBe('uid');
    const heard = await fixture.shell(`id -u; pwd; cat /etc/shadow ${fixture.keysFolder}/session.key.pem; env`);
    const text = String(heard.result['stdout']);
    expect(text).toMatch(/^2\d{4}\n/);
    expect(text).toContain(path.join(fixture.home, 'workspaces/s1'));
    expect(text).not.toMatch(/^root:|PRIVATE KEY|MARGAY_KEYS_DIR/m);
  });

  it('says which folder keeps the users of sandboxes out', async () => {
    chmodSync(fixture.home, 0o700);
    try {
      await expect(fixture.shell('true', { sessionId: 'h1' })).rejects.toMatchObject({
        reason: 'sandbox_home_closed',
        message: expect.stringContaining(fixture.home),
      });
    } finally {
      chmodSync(fixture.home, 0o711);
    }
  });

  it('holds file tools to the workspace, also through links', async () => {
    await fixture.shell('ln -s /etc/passwd link');
    expect((await fixture.call('read_file', { path: 'link' })).result['text']).toContain('outside all allowed');
  });

  it('ends what commands left behind together with the sandbox', async () => {
    const mark = `4100.${process.pid}`;
    await fixture.shell(`setsid sleep ${mark} > /dev/null 2>&1 & echo ok`, { sessionId: 'u1' });
    const alive = (): string => spawnSync('pgrep', ['-xf', `sleep ${mark}`], { encoding: 'utf8' }).stdout;
    expect(alive()).not.toBe('');
    await fixture.client.release({ sessionId: 'u1' }, fixture.principal);
    expect(alive()).toBe('');
  });

  it('ends what a cancelled run left behind, although it hid', async () => {
    const mark = `4200.${process.pid}`;
    await fixture.shell(`(env -i setsid sleep ${mark} > /dev/null 2>&1 &); sleep 0.1`, { sessionId: 'u2' });
    const alive = (): string => spawnSync('pgrep', ['-xf', `sleep ${mark}`], { encoding: 'utf8' }).stdout;
    expect(alive()).not.toBe('');
    const fence = { sessionId: 'u2', epoch: 2, kill: true, background: true };
    await fixture.client.fenceSession(fence, fixture.principal);
    expect(alive()).toBe('');
    expect((await fixture.shell('echo on', { sessionId: 'u2', epoch: 2 })).output).toBe('on\n');
  });

  it('refuses a second tenant while the first one has a sandbox', async () => {
    await fixture.shell('true');
    await expect(fixture.shell('true', { sessionId: 'm1', tenantId: 't2' })).rejects.toMatchObject({
      reason: 'sandbox_single_tenant',
    });
  });

  it('starts neither with an open door nor, for root, without any isolation', async () => {
    const other = new ExecutorFixture();
    try {
      const open = { MARGAY_SANDBOX_ISOLATION: 'uid', MARGAY_GATEWAY_LISTEN: '0.0.0.0:80' };
      await expect(other.start(open)).rejects.toMatchObject({ reason: 'sandbox_needs_loopback' });
      await expect(other.start({ MARGAY_SANDBOX_ISOLATION: 'none' })).rejects.toMatchObject({
        reason: 'sandbox_isolation',
      });
    } finally {
      await other.remove();
    }
  });

  it('leaves no running sandbox in its records after it stopped', async () => {
    await fixture.shell('true', { sessionId: 'l1' });
    await fixture.stop();
    const folder = path.join(fixture.home, 'sandboxes');
    for (const name of readdirSync(folder)) {
      const file = path.join(folder, name, 'record.json');
      expect(existsSync(file)).toBe(true);
      expect(JSON.parse(readFileSync(file, 'utf8'))).toMatchObject({ processes: [] });
    }
  });
});
