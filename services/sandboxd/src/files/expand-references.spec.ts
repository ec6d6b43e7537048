import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expandReferences } from './expand-references';

const environment = { PATH: process.env['PATH'] ?? '', HOME: '/nonexistent' };

let base: string;
let root: string;

beforeEach(() => {
  base = mkdtempSync(path.join(tmpdir(), 'margay-refs-'));
  root = path.join(base, 'workspace');
  write('src/a.ts', 'const a = 1;');
});
afterEach(() => rmSync(base, { recursive: true, force: true }));

function write(file: string, text: string | Buffer): void {
  mkdirSync(path.dirname(path.join(root, file)), { recursive: true });
  writeFileSync(path.join(root, file), text);
}

const git = (...words: string[]) =>
  execFileSync('git', ['-c', 'user.name=a', '-c', 'user.email=a@example.org', ...words], { cwd: root, stdio: 'pipe' });
const attachmentsFolder = () => path.join(base, 'attached');
const expand = (text: string, attachments: { filename: string; storedName: string }[] = []) =>
  expandReferences({ text, attachments }, { root, environment, attachmentsFolder: attachmentsFolder() });
const block = (name: string, body: string) => `\n--- @${name} ---\n${body}\n--- end @${name} ---\n`;

describe('references in a text', () => {
  it('are replaced by the files they name, what ends a sentence left outside', async () => {
    expect(await expand('Look at @src/a.ts, please. @src/a.ts')).toBe(
      `Look at ${block('src/a.ts', 'const a = 1;')}, please. @src/a.ts`,
    );
  });

  it.each([
    'bob@src/a.ts',
    '@nope.txt',
    '@../outside',
    '@/etc/passwd',
    '@.git/config',
    '@',
    '@...',
    '@https://x.example/a',
  ])('stay as they are where they lead nowhere: %s', async (text) => {
    git('init', '-q');
    writeFileSync(path.join(base, 'outside'), 'secret');
    expect(await expand(text)).toBe(text);
  });

  it('never follow a link out of the workspace', async () => {
    writeFileSync(path.join(base, 'outside'), 'secret');
    symlinkSync(path.join(base, 'outside'), path.join(root, 'link'));
    symlinkSync(base, path.join(root, 'folder'));
    expect(await expand('@link @folder/outside')).toBe('@link @folder/outside');
  });

  it('lead to what git knows or does not ignore, and nothing else of a repository', async () => {
    git('init', '-q');
    write('.gitignore', 'secret.env');
    write('secret.env', 'KEY=1');
    expect(await expand('@secret.env @src/a.ts')).toBe(`@secret.env ${block('src/a.ts', 'const a = 1;')}`);
  });

  it('show folders by what lies right in them', async () => {
    write('src/lib/b.ts', '');
    write('src/c.ts', '');
    expect(await expand('@src/')).toBe(block('src/', 'a.ts\nc.ts\nlib/'));
    for (let number = 0; number < 210; number += 1) write(`many/${String(number).padStart(3, '0')}`, '');
    expect(await expand('@many')).toContain('199\n10 more entries\n--- end @many ---');
  });

  it('show what has changed since the last commit', async () => {
    expect(await expand('@diff')).toBe('@diff');
    git('init', '-q');
    git('add', '.');
    git('commit', '-q', '-m', 'first');
    expect(await expand('@diff')).toBe(block('diff', '(no uncommitted changes)'));
    write('src/a.ts', 'const a = 2;');
    expect(await expand('@git-diff')).toContain('+const a = 2;');
  });

  it('show attached files by the names that people know', async () => {
    mkdirSync(attachmentsFolder());
    writeFileSync(path.join(attachmentsFolder(), 'ab12-notes.txt'), 'attached');
    const attachments = [{ filename: 'notes.txt', storedName: 'ab12-notes.txt' }];
    expect(await expand('See @notes.txt', attachments)).toBe(`See ${block('notes.txt', 'attached')}`);
    const escaping = [{ filename: 'x', storedName: '../workspace/src/a.ts' }];
    expect(await expand('See @x', escaping)).toBe('See @x');
  });

  it('show neither images nor what is no text', async () => {
    write('logo.png', 'x');
    write('tool.bin', Buffer.from([1, 0, 2]));
    expect(await expand('@logo.png')).toBe(block('logo.png', '[image file — not inlined as text]'));
    expect(await expand('@tool.bin')).toBe(block('tool.bin', '[binary file — not inlined as text]'));
  });

  it('show 16,000 characters each and 64,000 in all', async () => {
    for (let number = 0; number < 6; number += 1) write(`f${number}`, 'x'.repeat(20_000));
    const expanded = await expand('@f0 @f1 @f2 @f3 @f4 @f5');
    expect(expanded).toContain('[truncated: 16000 of 20000 characters]');
    expect(expanded.match(/x/g)?.length).toBeLessThanOrEqual(64_000);
    expect(expanded).toContain('--- @f5 ---\n[omitted: context budget reached]\n');
  });

  it('are not looked for in what they lead to', async () => {
    write('again', '@src/a.ts');
    expect(await expand('@again')).toBe(block('again', '@src/a.ts'));
  });
});
