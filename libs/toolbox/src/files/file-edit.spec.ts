import { chmodSync, existsSync, lstatSync, readdirSync, statSync, symlinkSync } from 'node:fs';
import path from 'node:path';
import { TestWorkspace, testCall } from '../test-workspace';
import { fileEditTool } from './file-edit';
import { recoverFiles } from './replace-files';
import type { PreparedEdit } from '../outcome';

describe('file_edit_tool', () => {
  let workspace: TestWorkspace;
  beforeEach(() => {
    workspace = new TestWorkspace();
  });
  afterEach(() => workspace.remove());
  const edit = (args: object, more = {}) =>
    fileEditTool({ file_path: 'a.txt', ...args }, workspace.paths, testCall(more));

  it('replaces the one occurrence and shows a unified diff', async () => {
    const file = workspace.write('a.txt', 'one\ntwo\nthree\n');
    const outcome = await edit({ old_string: 'two', new_string: '2' });
    expect(workspace.read('a.txt')).toBe('one\n2\nthree\n');
    expect(outcome.changedFiles).toEqual([file]);
    expect(outcome.result).toEqual({
      kind: 'diff',
      title: 'File Edit',
      text: '--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n',
      files: ['a.txt'],
    });
  });

  it('counts occurrences and replaces all only when told', async () => {
    workspace.write('a.txt', 'x x x');
    await expect(edit({ old_string: 'x', new_string: 'y' })).rejects.toThrow(
      'Found 3 occurrences of old_string in a.txt. Set replace_all=true to replace all, or provide a more specific match.',
    );
    await edit({ old_string: 'x', new_string: '$&$1', replace_all: true });
    expect(workspace.read('a.txt')).toBe('$&$1 $&$1 $&$1');
  });

  it('says what was not found, also when the file is missing', async () => {
    const message =
      'old_string not found in a.txt. Ensure the string matches exactly (including whitespace and newlines).';
    await expect(edit({ old_string: 'q', new_string: '' })).rejects.toThrow(message);
    workspace.write('a.txt', 'abc');
    await expect(edit({ old_string: 'q', new_string: '' })).rejects.toThrow(message);
  });

  it('creates a file with its folders, and appends to one that exists', async () => {
    const outcome = await edit({ file_path: 'new/dir/f', old_string: '', new_string: 'hi\n' });
    expect(outcome.result).toMatchObject({ text: expect.stringContaining('--- /dev/null\n+++ b/new/dir/f\n@@') });
    await edit({ file_path: 'new/dir/f', old_string: '', new_string: 'ho\n' });
    expect(workspace.read('new/dir/f')).toBe('hi\nho\n');
  });

  it('keeps CRLF line ends, whichever the model wrote', async () => {
    workspace.write('a.txt', 'one\r\ntwo\r\nthree\r\n');
    await edit({ old_string: 'one\ntwo', new_string: '1\n2' });
    await edit({ old_string: 'three', new_string: '3\n4' });
    expect(workspace.read('a.txt')).toBe('1\r\n2\r\n3\r\n4\r\n');
  });

  it('leaves other line ends of a mixed file alone', async () => {
    workspace.write('a.txt', 'a\r\nb\r\nc\nd\r\n');
    await edit({ old_string: 'b', new_string: 'B' });
    expect(workspace.read('a.txt')).toBe('a\r\nB\r\nc\nd\r\n');
  });

  it('keeps the mode and writes through a link inside the workspace', async () => {
    const file = workspace.write('real.sh', 'echo a\n');
    chmodSync(file, 0o755);
    symlinkSync('real.sh', path.join(workspace.root, 'link.sh'));
    await edit({ file_path: 'link.sh', old_string: 'a', new_string: 'b' });
    expect(workspace.read('real.sh')).toBe('echo b\n');
    expect(statSync(file).mode & 0o777).toBe(0o755);
    expect(lstatSync(path.join(workspace.root, 'link.sh')).isSymbolicLink()).toBe(true);
  });

  it('reports an edit without effect and refuses files that are not text', async () => {
    workspace.write('a.txt', 'same');
    expect((await edit({ old_string: 'same', new_string: 'same' })).result).toBe(
      'Applied edit to a.txt (no visible diff).',
    );
    workspace.write('a.txt', Buffer.from([0xff, 0xff]));
    await expect(edit({ old_string: 'a', new_string: 'b' })).rejects.toThrow('a.txt: unable to read');
  });

  it('names the missing arguments', async () => {
    await expect(edit({ old_string: 'a' })).rejects.toThrow(/new_string/);
  });

  it('leaves no temporary file behind', async () => {
    workspace.write('a.txt', 'a');
    await edit({ old_string: 'a', new_string: 'b' });
    expect(readdirSync(workspace.root)).toEqual(['a.txt']);
  });

  describe('cut off between staging and renaming', () => {
    const cutOff = async (): Promise<PreparedEdit> => {
      workspace.write('a.txt', 'old');
      let prepared: PreparedEdit | undefined;
      const onPrepared = (edit_: PreparedEdit): Promise<void> => {
        prepared = edit_;
        return Promise.reject(new Error('the process dies here'));
      };
      await expect(edit({ old_string: 'old', new_string: 'new' }, { onPrepared })).rejects.toThrow('dies');
      if (!prepared) throw new Error('nothing was prepared');
      return prepared;
    };

    it('is finished by recovery, once and again', async () => {
      const prepared = await cutOff();
      expect(workspace.read('a.txt')).toBe('old');
      expect(await recoverFiles(prepared.files)).toBe('applied');
      expect(await recoverFiles(prepared.files)).toBe('applied');
      expect(workspace.read('a.txt')).toBe('new');
    });

    it('is given up when somebody changed the file meanwhile', async () => {
      const prepared = await cutOff();
      workspace.write('a.txt', 'foreign');
      expect(await recoverFiles(prepared.files)).toBe('conflict');
      expect(workspace.read('a.txt')).toBe('foreign');
      expect(existsSync(prepared.files[0]?.temporary ?? '')).toBe(false);
    });
  });
});
