import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { readConfig } from './config';
import { VERSION } from './version';

const NEEDED = {
  MARGAY_SESSION_URL: '127.0.0.1:1',
  MARGAY_TOOL_EXECUTOR_URL: '127.0.0.1:2',
  MARGAY_NATS_URL: 'nats://127.0.0.1:3',
  MARGAY_KEYS_DIR: '/keys',
};

describe('configuration', () => {
  it('has defaults for what may be left out', () => {
    expect(readConfig(NEEDED)).toMatchObject({
      listen: { host: '127.0.0.1', port: 8080 },
      corsOrigins: '*',
      maxStreams: 10_000,
      rateLimit: { perSecond: 200, burst: 1_000 },
      streamDrainMs: 5_000,
    });
  });

  it('lists what is missing', () => {
    const { MARGAY_NATS_URL: _, ...others } = NEEDED;
    expect(() => readConfig(others)).toThrow(/MARGAY_NATS_URL/);
  });

  it.each(['msk-strong-password', 'short', 'x'.repeat(23)])(
    'refuses the master token %s without naming it',
    (token) => {
      const read = () => readConfig({ ...NEEDED, MARGAY_MASTER_TOKEN: token });
      expect(read).toThrow(/MARGAY_MASTER_TOKEN/);
      expect(read).not.toThrow(new RegExp(token));
    },
  );

  it('reads several origins and an IPv6 address', () => {
    const config = readConfig({
      ...NEEDED,
      MARGAY_CORS_ORIGIN: 'http://a.test, http://b.test',
      MARGAY_GATEWAY_LISTEN: '[::1]:80',
      MARGAY_MASTER_TOKEN: 'x'.repeat(24),
    });
    expect(config).toMatchObject({
      corsOrigins: ['http://a.test', 'http://b.test'],
      listen: { host: '::1', port: 80 },
    });
  });

  it('knows the version of its package', () => {
    const text = readFileSync(join(__dirname, '../package.json'), 'utf8');
    expect((JSON.parse(text) as { version: string }).version).toBe(VERSION);
  });
});
