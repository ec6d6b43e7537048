import { createHash } from 'node:crypto';
import { UnauthenticatedError, UnavailableError } from '@margay/errors';
import { Authenticator } from './authenticator';

const IDENTITY = { tenantId: 't', principal: 'user:ada', role: 'member', scopes: ['sessions.*'], allScopes: false };
const credential = (text: string, keyId?: string) => ({
  sha256: createHash('sha256').update(text).digest(),
  ...(keyId === undefined ? {} : { keyId }),
});

describe('Authenticator', () => {
  let nowMs = 0;
  const lookup = jest.fn();
  const authenticator = (masterToken?: string) => new Authenticator({ lookup, masterToken, now: () => nowMs });

  beforeEach(() => {
    nowMs = 1_000;
    lookup.mockReset().mockResolvedValue(IDENTITY);
  });

  it('makes the principal that the key stands for', async () => {
    const principal = await authenticator().identify(credential('k', 'id'));
    expect(principal).toEqual({
      v: 1,
      iss: 'gateway',
      tenantId: 't',
      principal: 'user:ada',
      role: 'member',
      scopes: ['sessions.*'],
      keyId: 'id',
    });
    expect(lookup).toHaveBeenCalledWith({ keyId: 'id', secretSha256: credential('k').sha256 });
  });

  it('asks once for many requests at once, and again after five seconds', async () => {
    const subject = authenticator();
    await Promise.all([1, 2, 3].map(() => subject.identify(credential('k', 'id'))));
    nowMs += 4_900;
    await subject.identify(credential('k', 'id'));
    expect(lookup).toHaveBeenCalledTimes(1);
    nowMs += 200;
    await subject.identify(credential('k', 'id'));
    expect(lookup).toHaveBeenCalledTimes(2);
  });

  it('remembers that a key is unknown, but not that nobody could tell', async () => {
    const subject = authenticator();
    lookup.mockRejectedValueOnce(new UnavailableError('unavailable', 'away'));
    await expect(subject.identify(credential('k', 'id'))).rejects.toMatchObject({ code: 'UNAVAILABLE' });
    lookup.mockRejectedValueOnce(new UnauthenticatedError('unknown_key', 'no'));
    await expect(subject.identify(credential('k', 'id'))).rejects.toMatchObject({ code: 'UNAUTHENTICATED' });
    await expect(subject.identify(credential('k', 'id'))).rejects.toMatchObject({ message: 'Unauthorized' });
    expect(lookup).toHaveBeenCalledTimes(2);
  });

  it('knows the secret apart from the id', async () => {
    const subject = authenticator();
    await subject.identify(credential('right', 'id'));
    lookup.mockRejectedValueOnce(new UnauthenticatedError('unknown_key', 'no'));
    await expect(subject.identify(credential('wrong', 'id'))).rejects.toMatchObject({ message: 'Unauthorized' });
  });

  it('takes the master token for the platform operator, without asking', async () => {
    const subject = authenticator('the token');
    const principal = await subject.identify({ ...credential('the token'), tenant: 'acme' });
    expect(principal).toMatchObject({
      principal: 'platform:operator',
      role: 'operator',
      tenantId: 'acme',
      scopes: null,
    });
    await expect(subject.identify(credential('another'))).rejects.toMatchObject({ message: 'Unauthorized' });
    expect(lookup).not.toHaveBeenCalled();
  });
});
