import { isNestedDeeper, JSON_DEPTH_MAX } from './nesting';

const lists = (depth: number) => '['.repeat(depth) + ']'.repeat(depth);
const objects = (depth: number) => `${'{"a":'.repeat(depth)}1${'}'.repeat(depth)}`;

it('allows the depth that is named, in lists and objects', () => {
  for (const nested of [lists, objects]) {
    expect(isNestedDeeper(nested(JSON_DEPTH_MAX))).toBe(false);
    expect(isNestedDeeper(nested(JSON_DEPTH_MAX + 1))).toBe(true);
  }
});

it('counts levels, not brackets', () => {
  expect(isNestedDeeper(`[${'[],'.repeat(1_000)}{}]`, 2)).toBe(false);
});

it('takes brackets in texts for text', () => {
  expect(isNestedDeeper(JSON.stringify({ a: '[[[[', 'b\\"{{{': '\\' }), 1)).toBe(false);
  expect(isNestedDeeper('{"a":"\\"","b":[[]]}', 2)).toBe(true);
});
