import { sessionsPb, type Principal } from '@margay/contracts';
import { UnavailableError } from '@margay/errors';
import { emptyHead, fold, MemoryCommitStore, readConfirmedTip, tipOf, type Command, type ForkPlan } from '@margay/log';
import { createLogger } from '@margay/platform';
import { createCommand, hashed, messageCommand } from '@margay/testing';
import type { ForkRow } from './fork.repository';
import { ForkService, type ForkPorts } from './fork.service';

const SOURCE = 'a'.repeat(32);
const ada: Principal = { v: 1, iss: 'gateway', tenantId: 'tenant', principal: 'user:ada', role: 'owner', scopes: null };

let store: MemoryCommitStore;
let rows: Map<string, ForkRow>;
let count: number;
let copied: string[];
let isAway: boolean;

beforeEach(async () => {
  store = new MemoryCommitStore();
  rows = new Map();
  count = 0;
  copied = [];
  isAway = false;
  await append(createCommand({ tenantId: 'tenant' }));
});

async function append(command: Command): Promise<void> {
  const tip = await readConfirmedTip(store, SOURCE);
  const from = tip.head.c === 0 ? { head: emptyHead(SOURCE), hash: '' } : tip;
  const { document } = fold(from, [hashed(command)], 1_700_000_000_000_000 + ++count * 1_000_000);
  if (!document) throw new Error('document expected');
  await store.insert(document);
  expect(tipOf(document).head.c).toBe(count);
}

async function copy({ source }: ForkPlan): Promise<void> {
  if (isAway) throw new UnavailableError('workspace_starting', 'no sandbox is there yet');
  copied.push(source.sessionId);
}

/** One replica; `beforePlan` is called between its looks for an earlier fork and its own plan. */
function replica(beforePlan: () => Promise<void> = async () => undefined): ForkService {
  const forks = {
    find: async (id: string) => rows.get(id),
    begin: async (plan: ForkPlan, command: { commitId: string; bodyHash: string }) => {
      await beforePlan();
      const known = rows.get(plan.sessionId);
      const row = { _id: plan.sessionId, tenantId: plan.tenantId, planJson: JSON.stringify(plan), ...command, dueAt: new Date() }; // prettier-ignore
      if (!known) rows.set(row._id, row);
      return known ?? row;
    },
    remove: async (id: string) => void rows.delete(id),
  };
  const ports = {
    log: {
      store,
      writes: store,
      requireWritable: () => undefined,
      confirmedTip: (id: string) => readConfirmedTip(store, id),
    },
    effects: { apply: async () => undefined },
    sessions: { find: async () => undefined },
    forks,
    files: { copy },
    logger: createLogger({ service: 'spec', level: 'off' }),
    clock: { nowMicros: () => 1_800_000_000_000_000 },
  };
  return new ForkService(ports as unknown as ForkPorts);
}

const fork = (service: ForkService, idempotencyKey: string) =>
  service.fork(ada, sessionsPb.ForkSessionRequest.fromPartial({ sessionId: SOURCE, idempotencyKey }));

it('is made once by two replicas, of the source as the first one saw it, also where the other looks before and plans behind', async () => {
  const before = (await readConfirmedTip(store, SOURCE)).head;
  const first = replica();
  const late = replica(async () => {
    // The first one has looked at the source before the message came.
    const bound = jest.spyOn(store, 'lowerBound').mockResolvedValue(before.c);
    const read = store.readNumber.bind(store);
    const blind = jest.spyOn(store, 'readNumber').mockImplementation(async (id, c) => (id === SOURCE && c > before.c ? undefined : read(id, c))); // prettier-ignore
    await fork(first, 'key');
    bound.mockRestore();
    blind.mockRestore();
  });
  await append(messageCommand('later'));
  await append({ kind: 'cancel', commitId: 'cancel' });
  const { sessionId, replayed } = await fork(late, 'key');
  expect(replayed).toBe(true);
  const frames: string[] = [];
  for await (const { events } of store.range(sessionId, 1)) frames.push(...events.map(({ frame }) => frame));
  expect(frames.join()).not.toContain('later');
  expect(rows.size).toBe(0);
});

it('takes along the files of a session that has no project, once it has run', async () => {
  await fork(replica(), 'too early');
  expect(copied).toEqual([]);
  await append(messageCommand('go'));
  await append({ kind: 'cancel', commitId: 'cancel' });
  const { sessionId } = await fork(replica(), 'key');
  expect(copied).toEqual([SOURCE]);
  expect(await fork(replica(), 'key')).toMatchObject({ sessionId, replayed: true });
  expect(copied).toEqual([SOURCE]);
  await append({ kind: 'bind', commitId: 'bind', binding: { project: 'shop', cwd: null }, context: {} });
  await fork(replica(), 'of a project');
  expect(copied).toEqual([SOURCE]);
});

it('is not made while its files cannot be taken along', async () => {
  await append(messageCommand('go'));
  await append({ kind: 'cancel', commitId: 'cancel' });
  isAway = true;
  await expect(fork(replica(), 'key')).rejects.toMatchObject({ reason: 'workspace_starting' });
  isAway = false;
  expect(await fork(replica(), 'key')).toMatchObject({ replayed: false });
  expect(rows.size).toBe(0);
});
