import { execFileSync } from 'node:child_process';
import { lstatSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Staging } from '../content/staging';
import { knownFiles } from './known-files';
import { openPlain, readPlain, replacePlain } from './plain-file';

let root: string;
const at = (...names: string[]) => path.join(root, ...names);
const pipe = (...names: string[]) => void execFileSync('mkfifo', [at(...names)]);
beforeEach(() => {
  root = mkdtempSync(path.join(tmpdir(), 'margay-plain-'));
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

describe('a pipe in the place of a file', () => {
  it('is no file, also behind a link, and nobody waits for it', async () => {
    pipe('pipe');
    symlinkSync('pipe', at('link'));
    for (const name of ['pipe', 'link', '.', 'none']) expect(await readPlain(at(name))).toBe('');
    writeFileSync(at('file'), 'text');
    symlinkSync('file', at('other'));
    expect(await readPlain(at('other'))).toBe('text');
    expect(await openPlain(at('other'), { followsLinks: false })).toBeUndefined();
  });

  it('gives way to what is written, and what a link leads to stays', async () => {
    pipe('pipe');
    writeFileSync(at('theirs'), 'theirs');
    symlinkSync('theirs', at('link'));
    for (const name of ['pipe', 'link']) {
      await replacePlain(at(name), 'mine');
      expect(lstatSync(at(name)).isFile()).toBe(true);
    }
    expect(readFileSync(at('theirs'), 'utf8')).toBe('theirs');
  });

  it('keeps nobody from looking into the workspace', async () => {
    pipe('pipe');
    symlinkSync('pipe', at('.mcp.json'));
    expect(await knownFiles(root, ['.mcp.json'])).toMatchObject({ mcpHash: '', mcpServers: [] });
  });

  it('keeps no content from being brought', async () => {
    mkdirSync(at('.margay'));
    for (const name of ['content.json', '.gitignore']) pipe('.margay', name);
    expect(await new Staging(root).begin('a'.repeat(32), 1)).toEqual({ wasMoving: false });
  });
});
