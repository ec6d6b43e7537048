import { workspaceIdOf } from '../driver/workspace-key';
import type { WorkspaceDocument } from '../content/workspace-document';
import type { Archive, ArchiveOwner } from './archive-store';
import { WorkspaceSnapshots, type WorkspaceSnapshotsPorts } from './workspace-snapshots';

const [from, to] = ['a'.repeat(32), 'b'.repeat(32)];
const idOf = (sessionId: string) => workspaceIdOf('t1', `s/${sessionId}`);
const archive = { n: 4, base: 0, at: new Date(0), bytes: 1, sha256: 'x', revision: 'r' } as Archive;

describe('the files of a fork', () => {
  let rows: Map<string, WorkspaceDocument>;
  let done: string[];
  let breaks: boolean;

  beforeEach(() => {
    rows = new Map();
    done = [];
    breaks = false;
  });

  const rowFor = (sessionId: string, more: Partial<WorkspaceDocument> = {}): WorkspaceDocument => ({
    ...{ _id: idOf(sessionId), tenantId: 't1', key: `s/${sessionId}`, rev: 1, class: 'strict', storage: 'volume' },
    ...{ state: 'live', createdAt: new Date(0), lastUsedAt: new Date(0) },
    ...more,
  });
  const keep = (row: WorkspaceDocument) => (rows.set(row._id, row), row);
  const records = {
    find: async (_: string, id: string) => rows.get(id),
    obtain: async (_: string, _key: string, made: Partial<WorkspaceDocument>) =>
      rows.get(idOf(to)) ?? keep(rowFor(to, { state: 'new', ...made })),
    changeLatest: async (
      { _id }: WorkspaceDocument,
      decide: (row: WorkspaceDocument) => { set: object } | undefined,
    ) => {
      const row = rows.get(_id);
      const decided = row && decide(row);
      return row && decided && keep({ ...row, ...decided.set });
    },
  };
  const snapshots = {
    take: async () => (done.push('taken'), archive),
    get: async () => (done.push('found'), archive),
    copy: async ({ workspaceId }: ArchiveOwner, n: number, into: ArchiveOwner) => {
      if (breaks) throw new Error('broken off');
      done.push(`${n} from ${workspaceId === idOf(from)} to ${into.workspaceId === idOf(to)}`);
      return archive;
    },
  };
  const utilities = { use: async (_: unknown, work: (place: unknown) => Promise<Archive>) => work({}) };
  const ports = { records, snapshots, utilities } as unknown as WorkspaceSnapshotsPorts;
  const fork = () => new WorkspaceSnapshots(ports).fork('t1', { from, to, owner: 'user:ada' });

  it('are brought from an archive that is taken then, and its own', async () => {
    keep(rowFor(from));
    expect(await fork()).toBe(idOf(to));
    expect(done).toEqual(['taken', '4 from true to true']);
    expect(rows.get(idOf(to))).toMatchObject({
      ...{ class: 'strict', storage: 'volume', owner: 'user:ada', forkedFrom: idOf(from) },
      content: { source: { kind: 'template', snapshot: `${idOf(to)}/4` }, status: 'pending' },
    });
    await fork();
    expect(done).toHaveLength(2);
  });

  it('are its newest archive where it has no volume', async () => {
    keep(rowFor(from, { storage: 'snapshot' }));
    await fork();
    expect(rows.get(idOf(to))).toMatchObject({ storage: 'snapshot', snapshot: { n: 4 } });
    expect(rows.get(idOf(to))?.content).toBeUndefined();
  });

  it('are those of the archive of a workspace that sleeps, which is not woken', async () => {
    keep(rowFor(from, { state: 'dormant', snapshot: archive }));
    await fork();
    expect(done[0]).toBe('found');
  });

  it('are taken along by a repeat where that broke off', async () => {
    keep(rowFor(from));
    breaks = true;
    await expect(fork()).rejects.toThrow('broken off');
    breaks = false;
    expect(await fork()).toBe(idOf(to));
    expect(rows.get(idOf(to))?.content).toMatchObject({ status: 'pending' });
  });

  it.each<[string, Partial<WorkspaceDocument> | undefined]>([
    ['has none', undefined],
    ['is being deleted', { state: 'deleting' }],
    [
      'has not got its own',
      { content: { id: '1', source: { kind: 'upload' }, replace: false, status: 'failed', losses: 0 } },
    ],
  ])('are none where the session %s', async (_, more) => {
    if (more) keep(rowFor(from, more));
    expect(await fork()).toBeUndefined();
    expect(rows.has(idOf(to))).toBe(false);
  });
});
