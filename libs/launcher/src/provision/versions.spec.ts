import { compareVersions, isAtLeast, majorVersion, parseVersion } from './versions';

describe('versions', () => {
  it.each([
    ['nats-server: v2.15.1', '2.15.1'],
    ['nats-server: v2.9.10', '2.9.10'],
    ['db version v8.2.6\nBuild Info: {"version": "8.2.6"}', '8.2.6'],
    ['secantusd-rs 0.5.3-beta.196\nsource: registry', '0.5.3-beta.196'],
    ['nats-server: v2.12.0-RC.1', '2.12.0-RC.1'],
    ['no version here', undefined],
  ])('finds the version in %j', (text, version) => {
    expect(parseVersion(text)).toBe(version);
  });

  it('compares numbers, not texts', () => {
    expect(isAtLeast('2.11.0', '2.9.10')).toBe(true);
    expect(isAtLeast('2.9.10', '2.11.0')).toBe(false);
    expect(isAtLeast('2.11.0', '2.11.0')).toBe(true);
    expect(['2.9.10', '2.15.1', '2.15.2'].sort((a, b) => compareVersions(b, a))).toEqual([
      '2.15.2',
      '2.15.1',
      '2.9.10',
    ]);
  });

  it('does not compare what follows the three numbers', () => {
    expect(compareVersions('0.5.3-beta.196', '0.5.3')).toBe(0);
  });

  it('names the major version', () => {
    expect(majorVersion('8.2.6')).toBe(8);
  });
});
