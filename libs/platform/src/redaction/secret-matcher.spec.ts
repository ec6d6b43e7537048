import { randomBytes } from 'node:crypto';
import { SecretMatcher } from './secret-matcher';
import { printsOf, type NamedSecret } from './secret-prints';
import { SecretStream } from './secret-stream';
import { spellingsOf } from './spellings';

const SECRET = `Canary+7/"x&y= z€!'(<~`;
const key = randomBytes(32);

function matcherOf(...secrets: (Partial<NamedSecret> & { value: string })[]): SecretMatcher {
  const named = secrets.map((secret, n) => ({ name: `s${n}`, owner: '', ...secret }));
  return new SecretMatcher(key, printsOf(key, named));
}

function inPieces(matcher: SecretMatcher, text: string, size: number): string {
  const stream = new SecretStream(matcher, []);
  const bytes = Buffer.from(text);
  const passed: Buffer[] = [];
  for (let at = 0; at < bytes.length; at += size) passed.push(stream.push(bytes.subarray(at, at + size)));
  return Buffer.concat([...passed, stream.end()]).toString();
}

describe('a text', () => {
  const matcher = matcherOf({ name: 'git/team', value: SECRET });

  it.each(spellingsOf([SECRET]).map((spelling) => [spelling.toString('latin1'), spelling]))(
    'shows the name where the secret stood, spelt %s',
    (_, spelling) => {
      const bytes = Buffer.concat([Buffer.from('before '), spelling, Buffer.from(' after')]);
      const { value, names } = matcher.maskBytes(bytes, []);
      expect(value.includes(spelling)).toBe(false);
      expect(value.toString('latin1')).toMatch(/^before .*\[secret:git\/team\].* after$/);
      expect([...names]).toEqual(['git/team']);
    },
  );

  it('without a secret is what it was', () => {
    const text = `${SECRET.slice(0, -1)} Canary CanaryCanary+7 ${'x'.repeat(10_000)}`;
    expect(matcher.maskText(text)).toEqual({ value: text, names: new Set() });
    const value = { a: ['b', 1, null], c: { d: text } };
    expect(matcher.maskValue(value).value).toBe(value);
  });

  it('shows the longer of two secrets that begin alike', () => {
    const both = matcherOf({ value: 'correct-horse' }, { value: 'correct-horse-battery' });
    expect(both.maskText('correct-horse-battery correct-horse').value).toBe('[secret:s1] [secret:s0]');
  });

  it('keeps what has fewer than eight characters', () => {
    expect(matcherOf({ value: 'seven77' }).isEmpty).toBe(true);
  });

  it('is searched for the secrets of the members that are named, and for no others', () => {
    const own = matcherOf({ value: 'of-one-member', owner: 'user:a' });
    expect(own.maskText('of-one-member', ['user:b']).value).toBe('of-one-member');
    expect(own.maskText('of-one-member', ['user:b', 'user:a']).value).toBe('[secret:s0]');
  });

  it('of JSON stays JSON, wherever the secret stood', () => {
    const numbers = matcherOf({ value: '1234567890' }, { value: SECRET });
    const json = JSON.stringify({ [SECRET]: [1234567890, { deep: `a ${SECRET}\n` }], n: 5 });
    expect(JSON.parse(numbers.maskJson(json).value)).toEqual({
      '[secret:s1]': ['[secret:s0]', { deep: 'a [secret:s1]\n' }],
      n: 5,
    });
  });

  it('costs no more when it is made to look like a secret everywhere', () => {
    const hostile = matcherOf({ value: `${'a'.repeat(32_000)}b` });
    const text = 'a'.repeat(1_000_000);
    const startedAt = process.cpuUsage().user;
    expect(hostile.maskText(text).value).toBe(text);
    expect(process.cpuUsage().user - startedAt).toBeLessThan(5_000_000);
  });

  it('cannot be read from the prints', () => {
    const prints = printsOf(key, [{ name: 'n', owner: '', value: SECRET }]);
    expect(JSON.stringify(prints)).not.toContain('Canary');
    expect(prints.every(({ start, mac }) => start < 2 ** 24 && mac.length === 16)).toBe(true);
  });
});

describe('a text that comes in pieces', () => {
  const matcher = matcherOf({ value: SECRET }, { value: 'second-secret' });

  it.each([1, 2, 3, 7, 8, 16, 1_000])('is masked as if it came whole, wherever it is cut: %d bytes', (size) => {
    const text = `before ${SECRET}${SECRET} ünd second-secret second-secre ${SECRET.slice(0, 12)} €`;
    expect(inPieces(matcher, text, size)).toBe(matcher.maskText(text).value);
  });

  it.each([1, 5, 9])('shows nothing of a longer secret before a shorter one inside it: %d bytes', (size) => {
    const nested = matcherOf({ value: 'inner-secret' }, { value: 'outer-inner-secret-outer' });
    expect(inPieces(nested, 'an outer-inner-secret-outer end', size)).toBe('an [secret:s1] end');
  });

  it('goes on but for its last bytes, and never cuts a character', () => {
    const stream = new SecretStream(matcher, []);
    expect(stream.push(Buffer.from('a long line of words')).toString()).toBe('a long line o');
    expect(stream.push(Buffer.from('€€€€')).toString()).toBe('f words€');
    expect(stream.end().toString()).toBe('€€€');
  });

  it('waits where a secret may have begun, and tells which ones it found', () => {
    const found: string[] = [];
    const stream = new SecretStream(matcher, [], (names) => found.push(...names));
    expect(stream.push(Buffer.from('is second-secr')).toString()).toBe('is ');
    expect(stream.push(Buffer.from('et, is it not')).toString()).toBe('[secret:s1], is');
    expect(found).toEqual(['s1']);
  });

  it('passes on what is no UTF-8 as well', () => {
    const stream = new SecretStream(matcher, []);
    for (let n = 0; n < 3; n += 1) expect(stream.push(Buffer.alloc(1_000, 0x80)).length).toBeGreaterThan(900);
    expect(stream.end().length).toBeLessThan(100);
  });
});
