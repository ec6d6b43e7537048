import { randomBytes } from 'node:crypto';
import type { secretsPb } from '@margay/contracts';
import { UnavailableError } from '@margay/errors';
import { createLogger, printsOf } from '@margay/platform';
import { TenantMatchers } from './tenant-matchers';

const key = randomBytes(32);
const answer = (etag: string, value: string): secretsPb.ListSecretPrintsResponse => ({
  etag,
  key,
  prints: printsOf(key, [{ name: 'api', owner: '', value }]),
});

describe('the secrets of a tenant', () => {
  let now: number;
  let present: secretsPb.ListSecretPrintsResponse;
  let isAway: boolean;
  const asked: string[] = [];
  let matchers: TenantMatchers;

  beforeEach(() => {
    now = 0;
    present = answer('e1', 'first-value');
    isAway = false;
    asked.length = 0;
    const client = {
      listSecretPrints: ({ etag }: secretsPb.ListSecretPrintsRequest) => {
        asked.push(etag);
        if (isAway) return Promise.reject(new UnavailableError('gone', 'session is away'));
        return Promise.resolve(etag === present.etag ? { etag, key: Buffer.alloc(0), prints: [] } : present);
      },
      close: () => undefined,
    };
    matchers = new TenantMatchers(client, createLogger({ level: 'off' }), () => now);
  });

  const masked = async (text: string) => (await matchers.of('t')).maskText(text).value;

  it('are asked for once by calls that begin together, and not again for a while', async () => {
    expect(await Promise.all([masked('first-value'), masked('first-value')])).toEqual(['[secret:api]', '[secret:api]']);
    now = 3_000;
    expect(await masked('first-value')).toBe('[secret:api]');
    expect(asked).toEqual(['']);
  });

  it('are known within five seconds of a change, and only then told anew', async () => {
    await masked('');
    now = 5_000;
    expect(await masked('first-value')).toBe('[secret:api]');
    present = answer('e2', 'second-value');
    now = 10_000;
    expect(await masked('first-value second-value')).toBe('first-value [secret:api]');
    expect(asked).toEqual(['', 'e1', 'e1']);
  });

  it('stay what they were while session is away; without a word from it nothing is known', async () => {
    isAway = true;
    await expect(masked('x')).rejects.toMatchObject({ code: 'UNAVAILABLE', reason: 'secrets_unknown' });
    isAway = false;
    await masked('');
    isAway = true;
    now = 60_000;
    expect(await masked('first-value')).toBe('[secret:api]');
  });
});
