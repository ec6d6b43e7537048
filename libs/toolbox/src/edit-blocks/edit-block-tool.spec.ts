import { existsSync } from 'node:fs';
import path from 'node:path';
import { TestWorkspace, testCall } from '../test-workspace';
import { editBlockTool } from './edit-block-tool';

const block = (search: string, replace: string, file = 'a.txt'): string =>
  `${file}\n\`\`\`\n<<<<<<< SEARCH\n${search}=======\n${replace}>>>>>>> REPLACE\n\`\`\`\n`;

describe('aider_edit_block_tool', () => {
  let workspace: TestWorkspace;
  beforeEach(() => {
    workspace = new TestWorkspace();
  });
  afterEach(() => workspace.remove());
  const edit = (content: string, more: object = {}) => editBlockTool({ content, ...more }, workspace.paths, testCall());

  it('applies several blocks to several files and shows one diff', async () => {
    workspace.write('a.txt', 'one\ntwo\n');
    workspace.write('b/c.txt', 'x\n');
    const outcome = await edit(block('one\n', '1\n') + block('1\ntwo\n', '1\n2\n') + block('x\n', 'y\n', 'b/c.txt'));
    expect(workspace.read('a.txt')).toBe('1\n2\n');
    expect(workspace.read('b/c.txt')).toBe('y\n');
    expect(outcome.result).toMatchObject({ kind: 'diff', title: 'Aider Edit Blocks', files: ['a.txt', 'b/c.txt'] });
    expect((outcome.result as { text: string }).text).toContain('--- a/b/c.txt\n+++ b/b/c.txt\n@@');
  });

  it('writes nothing unless every block matches', async () => {
    workspace.write('a.txt', 'one\n');
    await expect(edit(block('one\n', '1\n') + block('nope\n', 'x\n'))).rejects.toThrow(
      'SEARCH block failed to match in a.txt.',
    );
    expect(workspace.read('a.txt')).toBe('one\n');
  });

  it('creates a file for an empty SEARCH and appends to one that exists', async () => {
    await edit(block('', 'first\n', 'dir/new.txt'));
    await edit(block('', 'second\n', 'dir/new.txt'));
    expect(workspace.read('dir/new.txt')).toBe('first\nsecond\n');
    expect((await edit(block('', '', 'other.txt'))).result).toBe(
      'Applied 1 SEARCH/REPLACE block(s) across 1 file(s). Created 1 file(s).',
    );
  });

  it('lets a block empty a file', async () => {
    workspace.write('a.txt', 'all\n');
    await edit(block('all\n', ''));
    expect(workspace.read('a.txt')).toBe('');
  });

  it('only checks in get mode', async () => {
    workspace.write('a.txt', 'one\n');
    const outcome = await edit(block('one\n', '1\n'), { operation: 'get' });
    expect(outcome.result).toBe('Validated 1 SEARCH/REPLACE block(s) across 1 file(s).');
    expect(workspace.read('a.txt')).toBe('one\n');
  });

  it('accepts blocks as another name of content, and a bare string', async () => {
    workspace.write('a.txt', 'one\n');
    await editBlockTool({ blocks: block('one\n', '1\n') }, workspace.paths, testCall());
    await editBlockTool(block('1\n', '2\n'), workspace.paths, testCall());
    expect(workspace.read('a.txt')).toBe('2\n');
  });

  it('matches the first of several occurrences', async () => {
    workspace.write('a.txt', 'x\ny\nx\n');
    await edit(block('x\n', 'z\n'));
    expect(workspace.read('a.txt')).toBe('z\ny\nx\n');
  });

  it('shifts the indentation that a whole block lacks', async () => {
    workspace.write('a.py', 'def f():\n    if a:\n        b()\n');
    await edit(block('if a:\n    b()\n', 'if a:\n    c()\n\n    d()\n', 'a.py'));
    expect(workspace.read('a.py')).toBe('def f():\n    if a:\n        c()\n\n        d()\n');
  });

  it('does not shift when the missing indentation differs between lines', async () => {
    workspace.write('a.py', '  a\n    b\n');
    await expect(edit(block('a\nb\n', 'c\n', 'a.py'))).rejects.toThrow('failed to match');
  });

  it('drops a leading blank line that the file does not have', async () => {
    workspace.write('a.txt', 'one\ntwo\nthree\n');
    await edit(block('\none\ntwo\n', '1\n2\n'));
    expect(workspace.read('a.txt')).toBe('1\n2\nthree\n');
  });

  it('replaces around ellipses, each piece exactly once', async () => {
    workspace.write('a.txt', 'start\nkeep 1\nkeep 2\nend\n');
    await edit(block('start\n...\nend\n', 'START\n...\nEND\n'));
    expect(workspace.read('a.txt')).toBe('START\nkeep 1\nkeep 2\nEND\n');
    workspace.write('a.txt', 'x\nx\nend\n');
    await expect(edit(block('x\n...\nend\n', 'y\n...\nend\n'))).rejects.toThrow('failed to match');
    workspace.write('a.txt', 'a\nb\nend\n');
    await expect(edit(block('a\n...\nend\n', 'a\nend\n'))).rejects.toThrow('failed to match');
  });

  it('drops a fence pair inside SEARCH and REPLACE', async () => {
    workspace.write('a.txt', 'one\n');
    await edit(block('```\none\n```\n', '```\n1\n```\n'));
    expect(workspace.read('a.txt')).toBe('1\n');
  });

  it('keeps CRLF line ends and gives new lines the same', async () => {
    workspace.write('a.txt', 'one\r\ntwo\r\nthree\r\n');
    await edit(block('two\n', '2\n2b\n'));
    expect(workspace.read('a.txt')).toBe('one\r\n2\r\n2b\r\nthree\r\n');
  });

  it('keeps a file without a final line end usable', async () => {
    workspace.write('a.txt', 'one\ntwo');
    await edit(block('two\n', '2\n'));
    expect(workspace.read('a.txt')).toBe('one\n2\n');
  });

  it('shows the most similar lines, with context unless first and last lines agree', async () => {
    const lines = Array.from({ length: 20 }, (_, index) => `line ${index}`);
    workspace.write('a.txt', `${lines.join('\n')}\n`);
    await expect(edit(block('line 9\nline ten\nline 11\n', 'x\n'))).rejects.toThrow(
      /Did you mean to match:\nline 9\nline 10\nline 11\n\n/,
    );
    await expect(edit(block('line 9\nline 10\nline eleven\n', 'x\n'))).rejects.toThrow(
      /Did you mean to match:\nline 4\n(.*\n)+line 16\n\n/,
    );
    await expect(edit(block('nothing like it at all\n', 'x\n'))).rejects.not.toThrow(/Did you mean/);
  });

  describe('names of files', () => {
    it.each([
      ['`a.txt`:\n```text\n', []],
      ['## **a.txt**\n```\n', []],
      ['```a.txt\n', []],
      ['a.txt\n```python\n', []],
      ['a.txt\n', []],
      ['txt\n```\n', ['a.txt']],
    ])('finds it in %j', async (above, files) => {
      workspace.write('a.txt', 'one\n');
      const name = files.length > 0 ? 'a.tx' : '';
      const content = `${name ? above.replace('txt', name) : above}<<<<<<< SEARCH\none\n=======\n1\n>>>>>>> REPLACE\n`;
      await edit(content, { files });
      expect(workspace.read('a.txt')).toBe('1\n');
    });

    it('prefers the listed file of the same base name', async () => {
      workspace.write('src/a.txt', 'one\n');
      await edit(block('one\n', '1\n', 'a.txt'), { files: ['src/a.txt', 'src/b.txt'] });
      expect(workspace.read('src/a.txt')).toBe('1\n');
    });

    it('uses the file of the previous block', async () => {
      workspace.write('a.txt', 'one\ntwo\n');
      await edit(`${block('one\n', '1\n')}\n...\n<<<<<<< SEARCH\ntwo\n=======\n2\n>>>>>>> REPLACE\n`);
      expect(workspace.read('a.txt')).toBe('1\n2\n');
    });

    it('refuses a file that is not listed, also a new one', async () => {
      await expect(edit(block('', 'x\n', 'b.txt'), { files: ['a.txt'] })).rejects.toThrow('not in the list of files');
      expect(existsSync(path.join(workspace.root, 'b.txt'))).toBe(false);
    });

    it('refuses paths outside the workspace', async () => {
      await expect(edit(block('', 'x\n', '../b.txt'))).rejects.toThrow('outside all allowed project roots');
    });
  });

  describe('broken input', () => {
    it.each([
      ['nothing here', 'No SEARCH/REPLACE blocks found.'],
      ['```bash\nrm -rf .\n```\n', 'Shell command blocks are not supported by this tool.'],
      ['a.txt\n<<<<<<< SEARCH\none\n', '^^^ Expected `=======`'],
      ['a.txt\n<<<<<<< SEARCH\none\n=======\ntwo\n', '^^^ Expected `>>>>>>> REPLACE` or `=======`'],
      ['<<<<<<< SEARCH\none\n=======\ntwo\n>>>>>>> REPLACE\n', '^^^ Bad/missing filename'],
    ])('explains %j and reminds of the format', async (content, message) => {
      const failure = await edit(content).then(
        () => '',
        (error: Error) => error.message,
      );
      expect(failure).toContain(message);
      expect(failure).toContain('Each edit must look like this');
    });

    it('takes a shell fence around a block as a plain fence', async () => {
      workspace.write('a.sh', 'one\n');
      await edit('a.sh\n```bash\n<<<<<<< SEARCH\none\n=======\ntwo\n>>>>>>> REPLACE\n```\n');
      expect(workspace.read('a.sh')).toBe('two\n');
    });

    it('lets a second divider close a block', async () => {
      workspace.write('a.txt', 'one\n');
      await edit('a.txt\n<<<<<<< SEARCH\none\n=======\ntwo\n=======\n');
      expect(workspace.read('a.txt')).toBe('two\n');
    });
  });

  it('finds the hint in a large file in reasonable time', async () => {
    const lines = Array.from({ length: 20_000 }, (_, index) => `line ${index % 97}`);
    workspace.write('a.txt', lines.join('\n'));
    const search = `${lines.slice(500, 700).join('\n')}\nbut not this\n`;
    const startedAt = performance.now();
    await expect(edit(block(search, 'x\n'))).rejects.toThrow('Did you mean to match');
    expect(performance.now() - startedAt).toBeLessThan(5_000);
  });
});
