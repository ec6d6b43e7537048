import { createLogger } from '@margay/platform';
import type { LiveSandbox } from '../sandbox/sandbox-claims';
import type { SandboxWish } from '../sandbox/sandbox-registry';
import { workspaceIdOf } from '../driver/workspace-key';
import { ContentBringer } from './content-bringer';
import type { StoredContent, WorkspaceDocument } from './workspace-document';
import type { WorkspaceRecords } from './workspace-records';

const projectId = 'a'.repeat(32);
const wish = { tenantId: 't1', sessionId: 's1', workspace: { kind: 'project', projectId } } as unknown as SandboxWish;
const content = (id: string, more: Partial<StoredContent> = {}): StoredContent => ({
  ...{ id, source: { kind: 'upload' }, replace: false, status: 'pending', losses: 0 },
  ...{ upload: { fileId: `file ${id}`, sha256: id, bytes: 0, format: 'tar', filename: '' } },
  ...more,
});

describe('content that is brought', () => {
  let row: WorkspaceDocument;
  let removed: unknown[];
  /** While the sandbox brings it. */
  let meanwhile: () => void;

  beforeEach(() => {
    const key = `p/${projectId}`;
    const made = { class: 'default', storage: 'volume', state: 'live', createdAt: new Date(), lastUsedAt: new Date() };
    row = { _id: workspaceIdOf('t1', key), tenantId: 't1', key, rev: 1, ...made, content: content('1') } as never;
    removed = [];
    meanwhile = () => undefined;
  });

  const change = (set: Partial<WorkspaceDocument>) => (row = { ...row, ...set, rev: row.rev + 1 });
  const records = {
    find: async () => row,
    change: async (_: unknown, set: Partial<WorkspaceDocument>) => change(set),
    changeLatest: async (_: unknown, decide: (latest: WorkspaceDocument) => { set: object } | undefined) => {
      const decided = decide(row);
      return decided && change(decided.set);
    },
  } as unknown as WorkspaceRecords;

  function prepare(): Promise<void> {
    const uploads = {
      read: async () => Buffer.alloc(0),
      removeOf: async (...all: unknown[]) => void removed.push(all),
    };
    const orders = { kept: new Set(), of: async ({ upload }: StoredContent) => ({ order: {}, upload }) } as never;
    const logger = createLogger({ level: 'off' });
    const snapshots = { restore: async () => undefined };
    const ports = { records, uploads, orders, snapshots, hasRowsMade: true, instance: 'i', maxBytes: 1, logger };
    const end = { status: 'ready', reason: '', message: '', head: '' };
    const bring = async function* () {
      meanwhile();
      yield { message: { $case: 'end', value: end } };
    };
    const place = async () => ({ nextOffset: 0 });
    const sandbox = { ref: { sandboxId: 'x' }, connection: { content: { place, bring } } } as unknown as LiveSandbox;
    const context = { token: async () => '', report: () => undefined, signal: AbortSignal.timeout(5_000) };
    return new ContentBringer(ports).prepare(wish, sandbox, context as never);
  }

  it('lets go of the file that it was', async () => {
    await prepare();
    expect(row.content?.status).toBe('ready');
    expect(removed).toHaveLength(1);
  });

  it('keeps a file that somebody sent in its place meanwhile, which is brought next', async () => {
    meanwhile = () => {
      meanwhile = () => expect(removed).toEqual([]);
      change({ content: content('2') });
    };
    await prepare();
    expect(row.content).toMatchObject({ id: '2', status: 'ready' });
    expect(removed).toHaveLength(1);
  });
});
