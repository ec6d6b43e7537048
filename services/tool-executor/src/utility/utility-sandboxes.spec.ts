import { UnavailableError } from '@margay/errors';
import type { LiveSandbox } from '../sandbox/sandbox-claims';
import type { SandboxWish } from '../sandbox/sandbox-registry';
import { UtilitySandboxes } from './utility-sandboxes';

class FakeRegistry {
  readonly wishes: SandboxWish[] = [];
  readonly released: string[] = [];
  readonly forsaken: LiveSandbox[] = [];
  inUse = 0;
  residentId: string | undefined;
  open: Promise<void> = Promise.resolve();

  async obtain(wish: SandboxWish): Promise<LiveSandbox> {
    this.wishes.push(wish);
    await this.open;
    const ref = { sandboxId: 'sb', tenantId: wish.tenantId, sessionId: wish.sessionId };
    return { ref, connection: {}, incarnation: 'i1' } as unknown as LiveSandbox;
  }

  use(): () => void {
    this.inUse += 1;
    return () => void (this.inUse -= 1);
  }

  async ownerToken(): Promise<string> {
    return 'token';
  }

  async residentOf(): Promise<string | undefined> {
    return this.residentId;
  }

  async reach(tenantId: string, sessionId: string): Promise<LiveSandbox> {
    const ref = { sandboxId: 'theirs', tenantId, sessionId };
    return { ref, connection: {}, incarnation: 'i2' } as unknown as LiveSandbox;
  }

  async release(_tenantId: string, sessionId: string): Promise<void> {
    this.released.push(sessionId);
  }

  forsake(sandbox: LiveSandbox): void {
    this.forsaken.push(sandbox);
  }
}

const project = { tenantId: 't1', workspace: { kind: 'project' as const, projectId: 'a'.repeat(32) } };

it('works in a sandbox that is named after the workspace and belongs to no session', async () => {
  const registry = new FakeRegistry();
  const utilities = new UtilitySandboxes(registry);
  const seen = await utilities.use(project, async ({ sessionId, token }) => ({ sessionId, token: await token() }));
  expect(seen).toEqual({ sessionId: expect.stringMatching(/^u[0-9a-f]{32}$/), token: 'token' });
  await utilities.use(project, async ({ sessionId }) => expect(sessionId).toBe(seen.sessionId));
  await utilities.use({ ...project, tenantId: 't2' }, async ({ sessionId }) =>
    expect(sessionId).not.toBe(seen.sessionId),
  );
});

it('counts as in use while the work goes on, also when it fails', async () => {
  const registry = new FakeRegistry();
  const failed = new UtilitySandboxes(registry).use(project, async () => {
    expect(registry.inUse).toBe(1);
    throw new Error('the work failed');
  });
  await expect(failed).rejects.toThrow('the work failed');
  expect(registry.inUse).toBe(0);
});

it('says that the workspace is starting when its sandbox takes long, and uses it once it is there', async () => {
  const registry = new FakeRegistry();
  let arrive: () => void = () => undefined;
  registry.open = new Promise((resolve) => (arrive = resolve));
  const utilities = new UtilitySandboxes(registry, 20);
  const early = utilities.use(project, async () => 'done');
  await expect(early).rejects.toMatchObject({ reason: 'workspace_starting', httpStatus: 503, retryAfterMs: 5_000 });
  arrive();
  expect(await utilities.use(project, async () => 'done')).toBe('done');
});

it('works in the sandbox of the session that alone has the files', async () => {
  const registry = new FakeRegistry();
  registry.residentId = 's7';
  expect(await new UtilitySandboxes(registry).use(project, async ({ sessionId }) => sessionId)).toBe('s7');
  expect(registry.wishes).toEqual([]);
});

it('lets go of a sandbox that does not answer', async () => {
  const registry = new FakeRegistry();
  const gone = new UtilitySandboxes(registry).use(project, async () => {
    throw new UnavailableError('unavailable', 'nobody is there');
  });
  await expect(gone).rejects.toThrow('nobody is there');
  expect(registry.forsaken).toHaveLength(1);
});
