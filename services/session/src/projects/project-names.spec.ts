import { aliasesIn, meantBy, type Named } from './project-names';

const host = 'git.example.org';
const named = (project: string, name: string, owner?: string, repo = name): Named => ({
  project,
  name,
  ...(owner === undefined ? {} : { remote: { host, owner, name: repo } }),
});

const SHOP = named('shop', 'shop', 'acme', 'store');
const TOOLS = named('managed:1', 'Tools', 'acme', 'tools');
const OTHER = named('managed:2', 'Other tools', 'zoo', 'tools');
const COPY = named('managed:3', 'Copy', 'zoo', 'tools');
const PLAIN = named('managed:4', 'Plain');
const ALL = [SHOP, TOOLS, OTHER, PLAIN];

describe('the project that a text means', () => {
  it.each([
    ['shop', SHOP],
    ['Plain', PLAIN],
    ['store', SHOP],
    ['Acme/Store', SHOP],
    ['git.example.org/zoo/tools', OTHER],
    ['acme/tools', TOOLS],
    ['zoo', undefined],
    ['example.org/zoo/tools', undefined],
    ['', undefined],
  ])('%p', (text, project) => expect(meantBy(text, ALL)).toBe(project));

  it.each([
    ['tools', ALL, ['acme/tools', 'zoo/tools']],
    ['zoo/tools', [...ALL, COPY], ['managed:2', 'managed:3']],
    ['Plain', [...ALL, { ...PLAIN, project: 'managed:5' }], ['managed:4', 'managed:5']],
  ])('%p may mean several: it is refused with words that tell them apart', (text, projects, candidates) => {
    expect(() => meantBy(text, projects)).toThrow(
      expect.objectContaining({ reason: 'ambiguous_project', httpStatus: 409, details: { candidates } }),
    );
  });

  it('has a name before it has a repository', () => {
    const store = named('managed:9', 'store');
    expect(meantBy('store', [...ALL, store])).toBe(store);
    expect(aliasesIn([...ALL, store])(SHOP)).toEqual(['git.example.org/acme/store', 'acme/store']);
  });
});

it('aliases mean one project only', () => {
  expect(aliasesIn(ALL)(SHOP)).toEqual(['git.example.org/acme/store', 'acme/store', 'store']);
  expect(aliasesIn(ALL)(TOOLS)).toEqual(['git.example.org/acme/tools', 'acme/tools']);
  expect(aliasesIn([...ALL, COPY])(COPY)).toEqual([]);
  expect(aliasesIn(ALL)(PLAIN)).toEqual([]);
});
