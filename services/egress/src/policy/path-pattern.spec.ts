import { matchesPathPattern } from './path-pattern';

describe('a pattern of paths', () => {
  it.each([
    ['/team/**', '/team'],
    ['/team/**', '/team/'],
    ['/team/**', '/team/site/info/refs'],
    ['/team/**', '/team/.well-known/x'],
    ['/**', '/'],
    ['/**', '/a/b'],
    ['/a/**/b', '/a/b'],
    ['/a/**/b', '/a/x/y/b'],
    ['/**/refs', '/a/b/refs'],
    ['/team*', '/teams'],
    ['/team/*.git', '/team/site.git'],
    ['/v?/x', '/v1/x'],
    ['/@scope/a+b(1)', '/@scope/a+b(1)'],
    ['/a', '/a'],
  ])('%j holds for %j', (pattern, path) => expect(matchesPathPattern(pattern, path)).toBe(true));

  it.each([
    ['/team/**', '/teams'],
    ['/team/**', '/'],
    ['/team/*', '/team'],
    ['/team/*', '/team/a/b'],
    ['/team/*', '/team/'],
    ['/team*', '/team/x'],
    ['/v?/x', '/v/x'],
    ['/a.c', '/abc'],
    ['/a', '/a/'],
    ['/a/**/b', '/a/bc'],
  ])('%j does not hold for %j', (pattern, path) => expect(matchesPathPattern(pattern, path)).toBe(false));

  it('takes no time that its writer could draw out', () => {
    const pattern = `/${'*a'.repeat(200)}b/${'**/a*/'.repeat(15)}c`;
    const path = `/${'a'.repeat(4_000)}/${'a/'.repeat(2_000)}`;
    expect(matchesPathPattern(pattern, path)).toBe(false);
    expect(matchesPathPattern(pattern, `/${'a'.repeat(400)}b/${'a/'.repeat(2_000)}c`)).toBe(true);
  });
});
