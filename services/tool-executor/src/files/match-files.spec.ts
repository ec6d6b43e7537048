import { matchFiles } from './match-files';

const FILES = ['README.md', 'docs/app/readme.txt', 'src/app.module.ts', 'src/app/main.ts', 'test/app.ts'];

describe('paths that a text means', () => {
  it.each([
    ['', FILES],
    ['readme', ['README.md', 'docs/app/readme.txt']],
    ['APP', ['src/app.module.ts', 'test/app.ts', 'docs/app/readme.txt', 'src/app/main.ts']],
    ['src/app/', ['src/app/main.ts']],
    ['app.ts', ['test/app.ts']],
  ])('%p: whole parts in any case, names before folders', (query, found) =>
    expect(matchFiles(FILES, query)).toEqual(found),
  );

  it.each([
    ['smain', ['src/app/main.ts']],
    ['srcm', ['src/app/main.ts', 'src/app.module.ts']],
    ['zzz', []],
  ])('%p: else letters in their order, shorter paths first', (query, found) =>
    expect(matchFiles(FILES, query)).toEqual(found),
  );
});
