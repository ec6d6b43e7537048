import { sessionsPb } from '@margay/contracts';
import { createCommand } from '@margay/testing';
import { SessionsService, type SessionsPorts } from '../sessions/sessions.service';
import { MemorySession } from '../spec/memory-session';
import type { WorktreeRow } from './worktree.repository';
import { WorktreesService, type WorktreesPorts } from './worktrees.service';

const ID = 'wt:shop:work';
const nothing = () => Promise.resolve();

/** The one row of these specs; what its hooks await comes between two steps of somebody else. */
class OneWorktree {
  row: WorktreeRow | undefined = {
    ...{ _id: `tenant ${ID}`, tenantId: 'tenant', worktreeId: ID, parent: 'shop', slug: 'work', branch: 'work' },
    ...{ owner: 'user', state: 'live', createdAt: new Date(0), rev: 1 },
  };
  /** Once a session has entered. */
  entered = nothing;
  /** Before the row says that it is being removed, and once it does. */
  leaving = nothing;
  left = nothing;

  find = (): Promise<WorktreeRow | undefined> => Promise.resolve(this.row && { ...this.row });
  list = (): Promise<WorktreeRow[]> => Promise.resolve([]);

  enter = async (_tenantId: string, _id: string, sessionId: string): Promise<boolean> => {
    if (this.row?.state !== 'live') return false;
    this.row.sessions = [...(this.row.sessions ?? []), sessionId];
    await once(this, 'entered');
    return true;
  };

  change = async ({ rev }: WorktreeRow, state: WorktreeRow['state']): Promise<WorktreeRow | undefined> => {
    if (state === 'removing') await once(this, 'leaving');
    if (this.row?.rev !== rev) return undefined;
    this.row = { ...this.row, state, rev: rev + 1 };
    const changed = { ...this.row };
    if (state === 'removing') await once(this, 'left');
    return changed;
  };

  remove = (): Promise<void> => {
    this.row = undefined;
    return Promise.resolve();
  };
}

async function once(of: OneWorktree, hook: 'entered' | 'leaving' | 'left'): Promise<void> {
  const awaited = of[hook];
  of[hook] = nothing;
  await awaited();
}

describe('a run that starts in a worktree while that is deleted', () => {
  let session: MemorySession;
  let worktree: OneWorktree;
  let sessions: SessionsService;
  let worktrees: WorktreesService;
  let removed: number;

  beforeEach(async () => {
    session = new MemorySession();
    worktree = new OneWorktree();
    removed = 0;
    session.projects = { shop: { path: '/tmp', description: '' } };
    session.worktrees = worktree;
    const { runPorts, log } = session;
    const rest = { effects: { redo: nothing }, attachments: { resolve: () => Promise.resolve([]) } };
    sessions = new SessionsService({ ...runPorts, log, ...rest } as unknown as SessionsPorts);
    const removeWorktree = () => Promise.resolve({ removed: (removed += 1) > 0 });
    // The projection of sessions is far behind.
    const behind = { boundTo: () => Promise.resolve([]) };
    const ports = { worktrees: worktree, log, projects: runPorts.projects, sessions: behind };
    worktrees = new WorktreesService({ ...ports, executor: { removeWorktree } } as unknown as WorktreesPorts);
    await session.submit(createCommand({ owner: session.owner.principal }));
  });

  const start = () =>
    sessions.accept(
      session.owner,
      sessionsPb.AcceptRunRequest.fromPartial({ sessionId: session.id, text: 'go', project: ID }),
    );
  const remove = (force = false) => worktrees.delete(session.owner, { project: 'shop', worktreeId: ID, force });
  const reasonOf = (asked: Promise<unknown>) =>
    asked.then(
      () => 'done',
      (error: unknown) => (error as { reason: string }).reason,
    );
  const isRunning = async () => (await session.head()).run !== null;

  it('does not start where the delete came between its look and its commit', async () => {
    let deleted = '';
    worktree.entered = async () => void (deleted = await reasonOf(remove()));
    expect(await reasonOf(start())).toBe('unknown_project');
    expect([deleted, removed, await isRunning()]).toEqual(['done', 1, false]);
  });

  it('keeps the worktree where it was committed before the row said that it leaves', async () => {
    let started = '';
    worktree.leaving = async () => void (started = await reasonOf(start()));
    expect(await reasonOf(remove())).toBe('worktree_busy');
    expect([started, removed, await isRunning(), worktree.row?.state]).toEqual(['done', 0, true, 'live']);
  });

  it('keeps it where it had entered before, and is committed after', async () => {
    let deleted: Promise<string> | undefined;
    let started = '';
    // The delete stands still from its mark until the run is committed.
    worktree.entered = () =>
      new Promise((go) => {
        worktree.left = () => {
          go();
          return asked.then((reason) => void (started = reason));
        };
        deleted = reasonOf(remove());
      });
    const asked = reasonOf(start());
    await asked;
    expect([await deleted, started, removed, await isRunning()]).toEqual(['worktree_busy', 'done', 0, true]);
    expect(worktree.row?.state).toBe('live');
  });

  it('does not start once it leaves', async () => {
    let started = '';
    worktree.left = async () => void (started = await reasonOf(start()));
    expect(await reasonOf(remove())).toBe('done');
    expect([started, removed, await isRunning()]).toEqual(['unknown_project', 1, false]);
  });

  it('does not start either where its files are removed by force', async () => {
    worktree.entered = async () => void (await remove(true));
    expect(await reasonOf(start())).toBe('unknown_project');
    expect([removed, await isRunning()]).toEqual([1, false]);
  });

  it('is looked at anew where the session was bound there meanwhile', async () => {
    await session.submit({ kind: 'bind', commitId: 'elsewhere', binding: { project: 'shop', cwd: null }, context: {} });
    await remove();
    const bind = { kind: 'bind' as const, binding: { project: ID, cwd: null }, context: {} };
    session.classed = async () => void (await session.submit({ ...bind, commitId: 'back' }));
    expect(await reasonOf(start())).toBe('unknown_project');
    expect(await isRunning()).toBe(false);
  });

  it('is removed at the end of its last session only where none has entered', async () => {
    let started = '';
    worktree.leaving = async () => void (started = await reasonOf(start()));
    const [row] = [await worktree.find()];
    expect(row && (await worktrees.clear(row))).toBe(false);
    expect([started, removed, worktree.row?.state]).toEqual(['done', 0, 'live']);
  });
});
