import { WorkspaceIndex, type IndexedFiles } from './workspace-index';

let nowMs: number;
let failures: unknown[];
let index: WorkspaceIndex;
let looks: ((found: string[] | Error) => void)[];

const REPOSITORY = { isGit: true, head: '', truncated: false, branches: [], currentBranch: '', branchesInUse: [] };
const MINUTE_MS = 60_000;

beforeEach(() => {
  jest.useFakeTimers();
  nowMs = 0;
  failures = [];
  looks = [];
  index = new WorkspaceIndex({ now: () => nowMs, onFailure: (_, error) => failures.push(error) });
});
afterEach(() => jest.useRealTimers());

const look = () =>
  new Promise<IndexedFiles>((resolve, reject) => {
    looks.push((found) => (found instanceof Error ? reject(found) : resolve({ ...REPOSITORY, files: found })));
  });
const get = (isLive = false, key = 'w') => index.get(key, { look, isLive });

async function known(...files: string[]): Promise<void> {
  const asked = get();
  looks.at(-1)?.(files);
  await asked;
}

describe('the index of a workspace', () => {
  it('waits for the first look, which everybody shares', async () => {
    const asked = [get(), get(true)];
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
    expect(await Promise.all([get(), get()])).toMatchObject([{ stale: true }, { stale: true }]);
    expect(looks).toHaveLength(2);
    looks[1]?.(['b']);
    await jest.advanceTimersByTimeAsync(0);
    expect(await get()).toMatchObject({ files: ['b'], stale: false });
  });

  it('looks anew after two seconds where a sandbox runs, and waits a moment for it', async () => {
    await known('a');
    nowMs += 2_001;
    const asked = get(true);
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
    expect(await asked).toMatchObject({ files: [], stale: true });
  });

  it('fails where there is no list at all, and looks again a minute later', async () => {
    const asked = get();
    looks[0]?.(new Error('no sandbox'));
    await expect(asked).rejects.toThrow('no sandbox');
    expect(failures).toHaveLength(1);
    expect(await get()).toMatchObject({ files: [], stale: true });
    expect(looks).toHaveLength(1);
    nowMs += MINUTE_MS + 1;
    void get();
    expect(looks).toHaveLength(2);
  });

  it('keeps what it has where a later look fails', async () => {
    await known('a');
    nowMs += MINUTE_MS + 1;
    await get();
    looks[1]?.(new Error('no sandbox'));
    await jest.advanceTimersByTimeAsync(0);
    expect(await get()).toMatchObject({ files: ['a'], stale: true });
    expect(failures).toHaveLength(1);
  });
});
