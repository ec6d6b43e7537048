import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { openStore, TEST_SOURCES, type OpenStore } from '@margay/launcher';
import { createLogger } from '@margay/platform';
import { MongoConnection } from '@margay/platform/mongo';
import type { GuardedCall, GuardStore, StoredResult } from './guard-store';
import { MemoryGuardStore } from './memory-guard-store';
import { MongoGuardStore } from './mongo-guard-store';

const database = `spec_${randomBytes(6).toString('hex')}`;
const connections: MongoConnection[] = [];
let directory: string;
let server: OpenStore;

beforeAll(async () => {
  directory = await mkdtemp(path.join(tmpdir(), 'margay-store-'));
  server = await openStore({ directory, allow: TEST_SOURCES });
}, 600_000);
afterAll(async () => {
  await connections[0]?.connection.dropDatabase();
  await Promise.all(connections.map((connection) => connection.close()));
  await server.stop();
  await rm(directory, { recursive: true, force: true });
});

async function connect(): Promise<MongoGuardStore> {
  const logger = createLogger({ level: 'off' });
  const connection = new MongoConnection({ url: server.url, database, logger, name: 'spec' });
  connections.push(connection);
  await connection.ready(30_000);
  const { db } = connection.connection;
  if (!db) throw new Error('not connected');
  const store = new MongoGuardStore(db.collection('toolCalls'), db.collection('outsideEpochs'));
  await store.createIndexes();
  return store;
}

const callOf = (callId: string, more: Partial<GuardedCall> = {}): GuardedCall => ({
  callId,
  tenantId: 't1',
  sessionId: 's1',
  runId: 'r1',
  rank: 1,
  toolId: 'mail',
  effect: 'unkeyed',
  argsHash: 'h',
  ...more,
});
const result: StoredResult = { status: 'ok', resultJson: '"sent"', durationMs: 3 };

/** What every guard store keeps, asked by two processes. */
function describeGuardStore(open: () => Promise<{ one: GuardStore; other: GuardStore }>): void {
  let one: GuardStore;
  let other: GuardStore;
  let count = 0;
  const fresh = (): string => `s1.1.1.${(count += 1)}`;

  beforeAll(async () => ({ one, other } = await open()));

  it('lets one of many make a call', async () => {
    const callId = fresh();
    const attempts = Array.from({ length: 20 }, (_, index) =>
      (index % 2 ? one : other).insert(callOf(callId), `p${index}`),
    );
    expect((await Promise.all(attempts)).filter(Boolean)).toHaveLength(1);
    expect(await one.find(callId)).toMatchObject({ ...callOf(callId), state: 'sent', beat: 0, isCancelled: false });
    expect(await one.find('never')).toBeUndefined();
  });

  it('stores a result once, and only of the process that makes the call', async () => {
    const callId = fresh();
    await one.insert(callOf(callId), 'p1');
    expect(await other.finish(callId, 'p2', result)).toBe(false);
    expect(await one.finish(callId, 'p1', result)).toBe(true);
    expect(await one.finish(callId, 'p1', { ...result, status: 'error' })).toBe(false);
    expect(await other.find(callId)).toMatchObject({ state: 'done', result });
  });

  it('counts beats of the process that makes the call, and shows what became of its calls', async () => {
    const [mine, theirs, done] = [fresh(), fresh(), fresh()];
    for (const callId of [mine, done]) await one.insert(callOf(callId), 'p1');
    await other.insert(callOf(theirs), 'p2');
    await one.finish(done, 'p1', result);
    const rows = await one.beat('p1', [mine, theirs, done]);
    const beats = Object.fromEntries(rows.map((row) => [row.callId, row.beat]));
    expect(beats).toEqual({ [mine]: 1, [theirs]: 0, [done]: 0 });
  });

  it('lets one take over, or settle, what nobody has confirmed since it was seen', async () => {
    const [taken, settled] = [fresh(), fresh()];
    for (const callId of [taken, settled]) await one.insert(callOf(callId), 'p1');
    const seen = { callId: taken, process: 'p1', beat: 0 };
    expect([await one.take(seen, 'p2', 2), await other.take(seen, 'p3', 2)]).toEqual([true, false]);
    expect(await one.find(taken)).toMatchObject({ process: 'p2', rank: 2, beat: 1 });
    await one.beat('p1', [settled]);
    expect(await other.settle({ callId: settled, process: 'p1', beat: 0 }, result)).toBe(false);
    expect(await other.settle({ callId: settled, process: 'p1', beat: 1 }, result)).toBe(true);
    expect(await one.take({ callId: settled, process: 'p1', beat: 1 }, 'p2', 2)).toBe(false);
  });

  it('gives back and removes only what that process makes', async () => {
    const [given, removed] = [fresh(), fresh()];
    for (const callId of [given, removed]) await one.insert(callOf(callId), 'p1');
    await other.release(given, 'p2');
    await other.remove(removed, 'p2');
    expect([(await one.find(given))?.process, (await one.find(removed))?.process]).toEqual(['p1', 'p1']);
    await one.release(given, 'p1');
    await one.remove(removed, 'p1');
    expect([(await one.find(given))?.process, await one.find(removed)]).toEqual(['', undefined]);
  });

  it('asks for the end of the calls of a session below an epoch', async () => {
    const [lower, higher, foreign] = [fresh(), fresh(), fresh()];
    await one.insert(callOf(lower, { sessionId: 's5' }), 'p1');
    await one.insert(callOf(higher, { sessionId: 's5', rank: 2 }), 'p1');
    await one.insert(callOf(foreign, { sessionId: 's5', tenantId: 't2' }), 'p1');
    await other.cancelBelow('t1', 's5', 2);
    const flags = await Promise.all([lower, higher, foreign].map(async (id) => (await one.find(id))?.isCancelled));
    expect(flags).toEqual([true, false, false]);
    await other.cancel(higher);
    expect((await one.find(higher))?.isCancelled).toBe(true);
  });

  it('keeps the highest epoch of a session', async () => {
    const both = [one.raise('t1', 's7', 3), other.raise('t1', 's7', 5)];
    await Promise.all(both);
    expect(await one.raise('t1', 's7', 4)).toBe(5);
    expect(await one.raise('t1', 's8', 1)).toBe(1);
    expect(await one.raise('t2', 's7', 1)).toBe(1);
  });

  it('keeps rows that may still be asked for when it deletes old ones', async () => {
    const callId = fresh();
    await one.insert(callOf(callId), 'p1');
    await one.expire();
    expect(await one.find(callId)).toMatchObject({ callId });
  });
}

describe('MemoryGuardStore', () => {
  describeGuardStore(async () => {
    const store = new MemoryGuardStore();
    return { one: store, other: store };
  });
});

describe('MongoGuardStore', () => {
  describeGuardStore(async () => ({ one: await connect(), other: await connect() }));

  it('deletes what nobody can ask for any more', async () => {
    const calls = connections[0]?.connection.db?.collection<{ _id: string; expiresAt: Date }>('toolCalls');
    await calls?.insertOne({ _id: 'old', expiresAt: new Date(0) });
    const store = await connect();
    await store.expire();
    expect(await store.find('old')).toBeUndefined();
  });

  it('keeps effects as long as an installation may be switched off, and what may be repeated for a week', async () => {
    const store = await connect();
    for (const effect of ['pure', 'keyed', 'unkeyed'] as const) await store.insert(callOf(effect, { effect }), 'p1');
    const left = async (days: number): Promise<string[]> => {
      await store.expire(new Date(Date.now() + days * 24 * 3_600_000));
      const rows = await Promise.all(['pure', 'keyed', 'unkeyed'].map((callId) => store.find(callId)));
      return rows.flatMap((row) => row?.effect ?? []);
    };
    expect(await left(6)).toEqual(['pure', 'keyed', 'unkeyed']);
    expect(await left(80)).toEqual(['keyed', 'unkeyed']);
    expect(await left(91)).toEqual([]);
  });

  it('says that the store is away in words of its own', async () => {
    const store = await connect();
    await connections.at(-1)?.close();
    await expect(store.find('x')).rejects.toMatchObject({ code: 'UNAVAILABLE', reason: 'store_unavailable' });
  });
});
