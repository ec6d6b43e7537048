import type { IndexContent } from './index-store';
import { EMPTY_CONTENT, indexDocument, PLACE } from './index-store-fixture';
import { MemoryIndexStore } from './memory-index-store';
import { WorkspaceIndex } from './workspace-index';

let nowMs: number;
let failures: unknown[];
let store: MemoryIndexStore;
let index: WorkspaceIndex;
let looks: ((found: string[] | Error) => void)[];

const MINUTE_MS = 60_000;

beforeEach(() => {
  jest.useFakeTimers();
  nowMs = 1_700_000_000_000;
  failures = [];
  looks = [];
  store = new MemoryIndexStore();
  index = indexOn(store);
});
afterEach(() => jest.useRealTimers());

const indexOn = (shared: MemoryIndexStore) =>
  new WorkspaceIndex({ store: shared, now: () => nowMs, onFailure: (_, error) => failures.push(error) });
const look = () =>
  new Promise<IndexContent>((resolve, reject) => {
    looks.push((found) => (found instanceof Error ? reject(found) : resolve({ ...EMPTY_CONTENT, files: found })));
  });
const get = (isLive = false, on = index) => on.get(PLACE, { look, isLive });
const soon = () => jest.advanceTimersByTimeAsync(0);

async function known(...files: string[]): Promise<void> {
  const asked = get();
  await soon();
  looks.at(-1)?.(files);
  await asked;
}

describe('the index of a workspace', () => {
  it('waits for the first look, which everybody shares', async () => {
    const asked = [get(), get(true)];
    await soon();
    expect(looks).toHaveLength(1);
    looks[0]?.(['a']);
    expect(await Promise.all(asked)).toMatchObject([
      { files: ['a'], stale: false },
      { files: ['a'], stale: false },
    ]);
  });

  it('answers at once for a minute, then what is old as stale while one look is under way', async () => {
    await known('a');
    nowMs += MINUTE_MS;
    expect(await get()).toMatchObject({ files: ['a'], stale: false });
    nowMs += 1;
    expect(await Promise.all(Array.from({ length: 100 }, () => get()))).toEqual(
      Array.from({ length: 100 }, () => expect.objectContaining({ files: ['a'], stale: true })),
    );
    expect(looks).toHaveLength(2);
    looks[1]?.(['b']);
    await soon();
    expect(await get()).toMatchObject({ files: ['b'], stale: false });
  });

  it('is looked for by one of all processes', async () => {
    await known('a');
    nowMs += MINUTE_MS + 1;
    const other = indexOn(store);
    expect(await Promise.all([get(), get(false, other)])).toMatchObject([{ stale: true }, { stale: true }]);
    expect(looks).toHaveLength(2);
  });

  it('comes from another process that looks for the first time', async () => {
    await store.claimRefresh(PLACE, nowMs, MINUTE_MS);
    const asked = get();
    await jest.advanceTimersByTimeAsync(600);
    await store.save(indexDocument(['theirs'], nowMs));
    await jest.advanceTimersByTimeAsync(300);
    expect(await asked).toMatchObject({ files: ['theirs'], stale: false });
    expect(looks).toHaveLength(0);
  });

  it('is fresh as long as a sandbox says that it has not changed', async () => {
    await known('a');
    nowMs += 2 * MINUTE_MS;
    await index.confirm(PLACE);
    expect(await get()).toMatchObject({ files: ['a'], stale: false });
    expect(looks).toHaveLength(1);
  });

  it('is never replaced by what was seen before', async () => {
    await known('a');
    await index.save(PLACE, { ...EMPTY_CONTENT, files: ['older'] }, nowMs - 1);
    expect((await get()).files).toEqual(['a']);
  });

  it('looks anew after two seconds where a sandbox runs, and waits a moment for it', async () => {
    await known('a');
    nowMs += 2_001;
    const asked = get(true);
    await soon();
    looks[1]?.(['b']);
    expect(await asked).toMatchObject({ files: ['b'] });
    nowMs += 2_001;
    const slow = get(true);
    await jest.advanceTimersByTimeAsync(1_500);
    expect(await slow).toMatchObject({ files: ['b'], stale: false });
  });

  it('has nothing and says so where the first look takes too long', async () => {
    const asked = get();
    await jest.advanceTimersByTimeAsync(10_000);
    expect(await asked).toEqual({ files: [], stale: true });
  });

  it('fails where there is no list at all, and looks again a minute later', async () => {
    const asked = get();
    await soon();
    looks[0]?.(new Error('no sandbox'));
    await expect(asked).rejects.toThrow('no sandbox');
    expect(failures).toHaveLength(1);
    const again = get();
    await jest.advanceTimersByTimeAsync(11_000);
    expect(await again).toEqual({ files: [], stale: true });
    expect(looks).toHaveLength(1);
    nowMs += MINUTE_MS + 1;
    void get();
    await soon();
    expect(looks).toHaveLength(2);
  });

  it('keeps what it has where a later look fails', async () => {
    await known('a');
    nowMs += MINUTE_MS + 1;
    await get();
    looks[1]?.(new Error('no sandbox'));
    await soon();
    expect(await get()).toMatchObject({ files: ['a'], stale: true });
    expect(failures).toHaveLength(1);
  });
});
