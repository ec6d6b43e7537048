import { execFileSync } from 'node:child_process';
import { symlinkSync, truncateSync } from 'node:fs';
import path from 'node:path';
import { TestWorkspace, testCall } from '../test-workspace';
import { editBlockTool } from '../edit-blocks/edit-block-tool';
import { fileEditTool } from './file-edit';
import { listDirectoryTool } from './list-directory';
import { readFileTool } from './read-file';

describe('file tools before files that are none', () => {
  let workspace: TestWorkspace;
  beforeEach(() => {
    workspace = new TestWorkspace('follow');
    execFileSync('mkfifo', [path.join(workspace.root, 'pipe')]);
    symlinkSync('/dev/zero', path.join(workspace.root, 'endless'));
  });
  afterEach(() => workspace.remove());

  it.each(['pipe', 'endless'])('read_file refuses %s at once', async (name) => {
    await expect(readFileTool({ path: name }, workspace.paths, testCall())).rejects.toThrow('unable to read');
  });

  it.each(['pipe', 'endless'])('the edit tools refuse %s at once', async (name) => {
    const edit = { file_path: name, old_string: '', new_string: 'x' };
    await expect(fileEditTool(edit, workspace.paths, testCall())).rejects.toThrow('unable to read');
    const content = `${name}\n<<<<<<< SEARCH\n=======\nx\n>>>>>>> REPLACE\n`;
    await expect(editBlockTool({ content }, workspace.paths, testCall())).rejects.toThrow('unable to read');
  });

  it('an edit refuses a file that would not fit into memory several times', async () => {
    truncateSync(workspace.write('huge.txt', ''), 64 * 1024 ** 3);
    const edit = { file_path: 'huge.txt', old_string: 'a', new_string: 'b' };
    await expect(fileEditTool(edit, workspace.paths, testCall())).rejects.toThrow('too large');
  });

  it('a list takes no rules from a pipe, a device or a huge file', async () => {
    for (const name of ['a', 'b', 'c']) workspace.write(`${name}/kept.txt`, '');
    execFileSync('mkfifo', [path.join(workspace.root, 'a/.gitignore')]);
    symlinkSync('/dev/zero', path.join(workspace.root, 'b/.gitignore'));
    truncateSync(workspace.write('c/.gitignore', '*'), 1024 ** 3);
    const { result } = await listDirectoryTool({}, workspace.paths, testCall());
    expect(result).toMatchObject({
      entries: expect.arrayContaining(['a/kept.txt', 'b/kept.txt', 'c/kept.txt']),
    });
  });
});
