import { createPrivateKey, createPublicKey } from 'node:crypto';
import { keyId, type Trust } from '@margay/platform';
import { missingServiceKeys, type SecretData } from '../bootstrap/secrets';
import { nextStep } from './rotation';

const STEP_MS = 120_000;

describe('the rotation of keys', () => {
  let data: SecretData;
  let now: number;
  let sandboxes: Map<string, number>;

  beforeEach(() => {
    data = missingServiceKeys({});
    now = Date.parse('2031-05-05T10:00:00Z');
    sandboxes = new Map();
  });

  async function take(): Promise<{ done: string; isFinished: boolean }> {
    const { data: written, ...told } = await nextStep(data, { now, stepMs: STEP_MS, sandboxesByKey: () => Promise.resolve(sandboxes) }); // prettier-ignore
    data = { ...data, ...written };
    now += STEP_MS;
    return told;
  }

  const kid = (file: string) => (data[file] ? keyId(createPublicKey(createPrivateKey(data[file]))) : undefined);
  const trusted = (service: string) =>
    ((JSON.parse(data['trust.json'] ?? '') as Trust)[service] ?? []).map((pem) => keyId(createPublicKey(pem)));

  it('is one of four steps, in each of which whatever signs is trusted', async () => {
    const first = kid('session.key.pem');
    expect((await take()).isFinished).toBe(false);
    const next = kid('session.next.pem');
    expect([kid('session.key.pem'), trusted('session')]).toEqual([first, [first, next]]);
    expect((await take()).isFinished).toBe(false);
    expect([kid('session.key.pem'), kid('session.old.pem'), kid('session.next.pem')]).toEqual([next, first, undefined]);
    expect(trusted('session')).toEqual([first, next]);
    expect((await take()).isFinished).toBe(false);
    expect([kid('session.old.pem'), trusted('session')]).toEqual([undefined, [first, next]]);
    expect((await take()).isFinished).toBe(true);
    expect([kid('session.key.pem'), trusted('session')]).toEqual([next, [next]]);
    expect(missingServiceKeys(data)).toEqual({});
  });

  it('is of all services at once, and can be begun again when it is finished', async () => {
    for (let n = 0; n < 4; n += 1) await take();
    const before = kid('gateway.key.pem');
    for (let n = 0; n < 4; n += 1) await take();
    expect(kid('gateway.key.pem')).not.toBe(before);
    expect(trusted('gateway')).toEqual([kid('gateway.key.pem')]);
  });

  it('waits until everybody has read the last step', async () => {
    await take();
    now -= 1;
    await expect(take()).rejects.toMatchObject({ reason: 'rotation_early' });
    now += 1;
    await take();
  });

  it('keeps the old key while sandboxes need it, or may', async () => {
    await take();
    const old = kid('tool-executor.key.pem') ?? '';
    await take();
    for (const key of [old, '']) {
      sandboxes = new Map([[key, 2]]);
      await expect(take()).rejects.toMatchObject({ reason: 'sandboxes_alive' });
      expect(kid('tool-executor.old.pem')).toBe(old);
    }
    sandboxes = new Map([[kid('tool-executor.key.pem') ?? '', 5]]);
    expect((await take()).done).toBe('the old keys sign nothing any more');
  });

  it('goes on where an installation gets a new service meanwhile', async () => {
    await take();
    const { 'channel.key.pem': _gone, 'channel.next.pem': _next, ...rest } = data;
    data = { ...rest, ...missingServiceKeys(rest) };
    await take();
    await take();
    await take();
    expect(trusted('channel')).toEqual([kid('channel.key.pem')]);
  });

  it('needs keys', async () => {
    data = {};
    await expect(take()).rejects.toMatchObject({ reason: 'keys_missing' });
  });
});
