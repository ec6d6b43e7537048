import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs'; // prettier-ignore
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Swap } from './swap';

interface Life {
  /** Changes to the file system that the process makes before it ends; what comes after them does not happen. */
  left: number;
}

jest.mock('node:fs/promises', () => {
  const real = jest.requireActual<typeof import('node:fs/promises')>('node:fs/promises');
  const life: Life = { left: Infinity };
  const step = (): void => {
    if (life.left <= 0) throw new Error('the process has ended');
    life.left -= 1;
  };
  const mortal =
    <A extends unknown[], R>(change: (...all: A) => Promise<R>) =>
    async (...all: A): Promise<R> => {
      step();
      return change(...all);
    };
  /** One by one, as it is. */
  const rm: typeof real.rm = async (file, options) => {
    const names = await real.readdir(file).catch(() => []);
    const facts = await real.lstat(file).catch(() => undefined);
    if (facts?.isDirectory()) for (const name of names) await rm(path.join(file.toString(), name), options);
    step();
    return real.rm(file, options);
  };
  const { rename, mkdir, writeFile } = real;
  return { ...real, rename: mortal(rename), mkdir: mortal(mkdir), writeFile: mortal(writeFile), rm, life };
});
const { life } = jest.requireMock<{ life: Life }>('node:fs/promises');

describe('files that change places', () => {
  let base = '';
  let root: string;
  /** Beside the workspace; links must not lead us there, and never to a real one, whose files a fault would move. */
  let foreign: string;
  const at = (...names: string[]) => path.join(root, ...names);
  const beside = (...names: string[]) => at('.margay-restore', ...names);

  function put(file: string, content = ''): void {
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(file, content);
  }

  /** Two folders of the same name, and a file that only one of them has. */
  async function restore(): Promise<void> {
    put(at('src', 'a.txt'), 'old');
    put(at('only-old.txt'), 'old');
    const swap = new Swap(root);
    await swap.begin();
    put(beside('new', 'src', 'a.txt'), 'new');
    put(beside('new', 'only-new.txt'), 'new');
    await swap.commit();
    await swap.end();
  }

  function found(): string {
    const names = readdirSync(root).sort();
    return [...names, readFileSync(at('src', 'a.txt'), 'utf8')].join(' ');
  }

  function begin(): void {
    life.left = Infinity;
    if (base) rmSync(base, { recursive: true, force: true });
    base = mkdtempSync(path.join(tmpdir(), 'margay-swap-'));
    [root, foreign] = [path.join(base, 'workspace'), path.join(base, 'foreign')];
    mkdirSync(root);
    put(path.join(foreign, 'theirs'));
    put(path.join(foreign, 'old', 'theirs'));
  }

  beforeEach(begin);
  afterEach(() => {
    life.left = Infinity;
    rmSync(base, { recursive: true, force: true });
  });

  /** Whether it came to its end. */
  async function until(steps: number, work: () => Promise<void>): Promise<boolean> {
    life.left = steps;
    try {
      await work();
      return true;
    } catch {
      return false; // it had no more steps
    } finally {
      life.left = Infinity;
    }
  }

  it('is whole, old or new, whenever the process ends, and whenever the next one does', async () => {
    const seen = new Set<string>();
    let isOver = false;
    for (let first = 0; !isOver && first < 60; first += 1)
      for (let second = 0, isPutRight = false; !isPutRight && second < 40; second += 1) {
        begin();
        isOver = await until(first, restore);
        isPutRight = await until(second, () => new Swap(root).recover());
        await new Swap(root).recover();
        seen.add(found());
      }

    expect([...seen].sort()).toEqual(['only-new.txt src new', 'only-old.txt src old']);
  });

  it('brings the old files back where a command made others of their names meanwhile', async () => {
    put(at('src', 'meanwhile.txt'), 'of a command that ran on');
    put(beside('halfway'));
    put(beside('new', 'src', 'a.txt'), 'new');
    put(beside('old', 'src', 'a.txt'), 'old');

    await new Swap(root).end();

    expect(found()).toBe('src old');
  });

  it('are left to another daemon for as long as it is at it', async () => {
    put(at('src', 'a.txt'), 'old');
    const swap = new Swap(root);
    await swap.begin();
    put(beside('new', 'src', 'a.txt'), 'new');
    const other = new Swap(root);
    expect(await other.hasBeat()).toBe(true);
    let isOver = false;
    const waiting = other.recoverOnceStill().finally(() => (isOver = true));
    const beaten = () => statSync(beside('beat')).mtimeMs;
    const first = beaten();
    while (beaten() === first) await delay(50);
    expect([isOver, existsSync(beside('new', 'src', 'a.txt'))]).toEqual([false, true]);
    await swap.commit();
    await swap.end();
    await waiting;
    expect([found(), existsSync(beside())]).toEqual(['src new', false]);
  });

  it('are put right when the daemon that was at it does nothing any more', async () => {
    put(at('src', 'a.txt'), 'new');
    for (const [name, content] of [['beat'], ['halfway'], ['old/src/a.txt', 'old']])
      put(beside(name as string), content);
    const swap = new Swap(root);
    expect(await swap.hasBeat()).toBe(true);
    await swap.recoverOnceStill(300);
    expect([found(), existsSync(beside())]).toEqual(['src old', false]);
  });

  it.each<[string, () => void]>([
    ['a folder that is in the way', () => put(beside('old', 'src', 'planted'))],
    ['a mark without new files', () => (put(beside('halfway')), put(beside('old', 'src', 'a.txt'), 'mine'))],
    ['a file for a folder', () => put(beside('old'))],
    ['a link for a folder', () => (mkdirSync(beside()), symlinkSync(foreign, beside('old')))],
    ['a link for all of it', () => symlinkSync(foreign, beside())],
    ['a file for all of it', () => put(beside())],
  ])('opens a workspace in which somebody planted %s', async (_, plant) => {
    put(at('src', 'a.txt'), 'mine');
    plant();

    await new Swap(root).recover();

    expect(existsSync(beside())).toBe(false);
    expect(readdirSync(root)).toEqual(['src']);
    expect(readdirSync(foreign).sort()).toEqual(['old', 'theirs']);
    expect(readdirSync(path.join(foreign, 'old'))).toEqual(['theirs']);
  });
});
