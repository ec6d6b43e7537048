import { isHostPattern, matchesHost } from '@margay/contracts';
import { normalHostName, requestedHostName } from './host-name';

describe('the name of a host', () => {
  it('has one spelling', () => {
    expect(normalHostName('Packages.Example.COM.')).toBe('packages.example.com');
    expect(normalHostName('bücher.example')).toBe('xn--bcher-kva.example');
  });

  it.each([
    ...['127.0.0.1', '2130706433', '0x7f000001', '0x7f.1', '0177.0.0.1', '127.1', '[::1]', '::1', '::ffff:127.0.0.1'],
    ...['１２７.0.0.1', '', '.', 'a..b', '-a.example', 'a b.example', 'a%2eb', 'a.example:80', 'user@a.example', 'a/b'],
    ...['example.com..', '*.example.com', `${'a'.repeat(64)}.example`, `${'a.'.repeat(127)}example`],
  ])('is not %j', (text) => {
    expect(() => requestedHostName(text)).toThrow(expect.objectContaining({ reason: 'egress_denied' }));
  });

  it('matches itself, or a wildcard above it at any depth', () => {
    expect(matchesHost('example.com', 'example.com')).toBe(true);
    expect(matchesHost('*.example.com', 'a.b.example.com')).toBe(true);
    expect(matchesHost('*.example.com', 'example.com')).toBe(false);
    expect(matchesHost('*.example.com', 'badexample.com')).toBe(false);
    expect(matchesHost('example.com', 'example.com.evil.example')).toBe(false);
  });

  it.each(['*', '*.*', 'a.*.example', '*.127.0.0.1', 'UPPER.example', '*example.com'])('has no pattern %j', (text) => {
    expect(isHostPattern(text)).toBe(false);
  });
});
