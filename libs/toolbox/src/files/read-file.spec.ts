import { mkdirSync, statSync, symlinkSync, utimesSync } from 'node:fs';
import path from 'node:path';
import { TestWorkspace, testCall } from '../test-workspace';
import { readFileTool } from './read-file';

describe('read_file', () => {
  let workspace: TestWorkspace;
  beforeEach(() => {
    workspace = new TestWorkspace();
  });
  afterEach(() => workspace.remove());
  const read = (args: unknown, more = {}) => readFileTool(args, workspace.paths, testCall(more));

  it('numbers lines from 1 and counts them all', async () => {
    workspace.write('a.txt', 'one\ntwo\nthree\n');
    const outcome = await read({ path: 'a.txt', offset: 1, limit: 1 });
    expect(outcome.result).toEqual({
      kind: 'file',
      path: 'a.txt',
      text: '2\ttwo\n... (truncated — use offset/limit to read more)',
      total_lines: 3,
    });
    expect(outcome.fileVersion).toBeUndefined();
  });

  it('takes a bare string as the path and reads to the end', async () => {
    workspace.write('a.txt', 'one\r\ntwo');
    expect((await read('a.txt')).result).toEqual({
      kind: 'file',
      path: 'a.txt',
      text: '1\tone\n2\ttwo',
      total_lines: 2,
    });
  });

  it.each([
    [{ offset: 'x', limit: 'y' }, '1\ta\n2\tb'],
    [{ offset: -5, limit: 0 }, '1\ta\n2\tb'],
    [{ offset: '1' }, '2\tb'],
    [{ offset: 9 }, ''],
  ])('understands %j', async (more, text) => {
    workspace.write('a.txt', 'a\nb\n');
    expect((await read({ path: 'a.txt', ...more })).result).toMatchObject({ text, total_lines: 2 });
  });

  it('reads an empty file as no lines', async () => {
    workspace.write('empty', '');
    expect((await read('empty')).result).toMatchObject({ text: '', total_lines: 0 });
  });

  it('stops after max_bytes', async () => {
    workspace.write('a.txt', 'abc\ndef\nghi\n');
    const outcome = await read({ path: 'a.txt', max_bytes: 5 });
    expect(outcome.result).toMatchObject({ text: expect.stringMatching(/^1\tabc\n2\td\n\.\.\. \(truncated/) });
  });

  it('reads characters that lie across two pieces of a large file', async () => {
    workspace.write('big.txt', `${'x'.repeat(256 * 1024 - 1)}é\nlast\n`);
    const { result } = await read({ path: 'big.txt', offset: 1 });
    expect(result).toMatchObject({ text: '2\tlast', total_lines: 2 });
  });

  it('bounds the text of a huge line', async () => {
    workspace.write('huge', 'y'.repeat(3_000_000));
    const { result } = await read('huge');
    expect((result as { text: string }).text.length).toBeLessThan(1_000_100);
  });

  it.each(['missing.txt', 'folder', 'binary'])('says that %s cannot be read', async (name) => {
    mkdirSync(path.join(workspace.root, 'folder'));
    workspace.write('binary', Buffer.from([0xff, 0xfe, 0x00, 0xd8]));
    await expect(read(name)).rejects.toThrow(`${name}: unable to read`);
  });

  it('answers unchanged for the version it handed out, until time or size moves', async () => {
    const file = workspace.write('a.txt', 'one');
    const first = await read('a.txt');
    expect(first.fileVersion).toEqual({ mtimeNs: String(statSync(file, { bigint: true }).mtimeNs), size: 3 });
    const ifUnchanged = first.fileVersion;
    expect(await read('a.txt', { ifUnchanged })).toMatchObject({ unchanged: true, result: '' });
    utimesSync(file, new Date(1), new Date(1));
    expect((await read('a.txt', { ifUnchanged })).unchanged).toBeUndefined();
  });

  it('refuses paths outside every allowed root', async () => {
    workspace.write('../secret.txt', 'secret');
    const message = "Path '../secret.txt' resolves outside all allowed project roots.";
    await expect(read('../secret.txt')).rejects.toThrow(message);
    await expect(read(path.join(workspace.base, 'secret.txt'))).rejects.toThrow('outside all allowed');
    await expect(read({ path: 'x', root: '/' })).rejects.toThrow('outside all allowed');
    await expect(read(`${workspace.root}-twin/x`)).rejects.toThrow('outside all allowed');
  });

  it('refuses a link that leads out where paths are the only wall', async () => {
    workspace.write('../secret.txt', 'secret');
    symlinkSync('../secret.txt', path.join(workspace.root, 'link'));
    symlinkSync('..', path.join(workspace.root, 'up'));
    await expect(read('link')).rejects.toThrow('outside all allowed');
    await expect(read('up/secret.txt')).rejects.toThrow('outside all allowed');
  });

  it('follows such a link where a sandbox is the wall', async () => {
    const open = new TestWorkspace('follow');
    try {
      open.write('../secret.txt', 'shared');
      symlinkSync('../secret.txt', path.join(open.root, 'link'));
      const outcome = await readFileTool('link', open.paths, testCall());
      expect(outcome.result).toMatchObject({ text: '1\tshared' });
    } finally {
      open.remove();
    }
  });
});
