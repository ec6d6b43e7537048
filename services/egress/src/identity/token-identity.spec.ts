import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { UnauthenticatedError, UnavailableError } from '@margay/errors';
import { TokenIdentity, type Claim } from './token-identity';

let now: number;
let asked: Claim[];
let isUp: boolean;
let outcomes: string[];
let identity: TokenIdentity;

beforeEach(() => {
  [now, asked, isUp, outcomes] = [1_000, [], true, []];
  identity = new TokenIdentity(
    async (claim) => {
      asked.push(claim);
      if (!isUp) throw new UnavailableError('unreachable', 'Nobody there.');
      if (claim.token !== 'right') throw new UnauthenticatedError('egress_identity', 'Wrong.');
      return { tenantId: 't1', sandboxId: claim.sandboxId, sessionId: 's1' };
    },
    (outcome) => outcomes.push(outcome),
    () => now,
  );
});

function ask(user: string, remoteAddress = '::ffff:127.0.0.7') {
  const authorization = `Basic ${Buffer.from(user).toString('base64')}`;
  const headers = user === '' ? {} : { 'proxy-authorization': authorization };
  return identity.identify({ headers, socket: { remoteAddress } as Socket } as IncomingMessage);
}

describe('callers over a network', () => {
  it('are asked for once a minute', async () => {
    await Promise.all([ask('b1:right'), ask('b1:right')]);
    now += 59_000;
    expect(await ask('b1:right')).toEqual({ tenantId: 't1', sandboxId: 'b1', sessionId: 's1' });
    expect(asked).toEqual([{ sandboxId: 'b1', token: 'right', sourceAddress: '127.0.0.7' }]);
    now += 2_000;
    await ask('b1:right');
    expect(asked).toHaveLength(2);
  });

  it('are known from their own address only', async () => {
    await ask('b1:right');
    await ask('b1:right', '::1');
    expect(asked.map(({ sourceAddress }) => sourceAddress)).toEqual(['127.0.0.7', '::1']);
  });

  it.each(['', 'b1', ':right', 'b1:', 'b1:wrong'])('are refused as %j', async (user) => {
    await expect(ask(user)).rejects.toMatchObject({ reason: 'egress_identity' });
  });

  it('are asked for again once their sandbox has changed, and no others', async () => {
    for (const user of ['b1:right', 'b2:right']) await ask(user);
    identity.forget('b1');
    for (const user of ['b1:right', 'b2:right']) await ask(user);
    expect(asked.map(({ sandboxId }) => sandboxId)).toEqual(['b1', 'b2', 'b1']);
    identity.forgetAll();
    for (const user of ['b1:right', 'b2:right']) await ask(user);
    expect(asked).toHaveLength(5);
  });

  it('are asked for again where the sandbox changes while they are being asked for', async () => {
    const early = ask('b1:right');
    identity.forget('b1');
    await Promise.all([early, ask('b1:right')]);
    expect(asked).toHaveLength(2);
  });

  it('may become known a moment later', async () => {
    await expect(ask('b1:wrong')).rejects.toThrow();
    await expect(ask('b1:wrong')).rejects.toThrow();
    expect(asked).toHaveLength(1);
    now += 2_500;
    await expect(ask('b1:wrong')).rejects.toThrow();
    expect(asked).toHaveLength(2);
  });

  it('are told to try again while nobody knows them', async () => {
    isUp = false;
    await expect(ask('b1:right')).rejects.toMatchObject({ reason: 'egress_unavailable' });
    isUp = true;
    await expect(ask('b1:right')).resolves.toMatchObject({ sessionId: 's1' });
  });

  it('cost few look-ups from one address, whatever is guessed there, and disturb nobody else', async () => {
    await ask('b1:right');
    for (let guess = 0; guess < 100; guess += 1) await ask(`b1:guess${guess}`).catch(() => undefined);
    expect(asked).toHaveLength(20);
    await expect(ask('b1:one-more')).rejects.toMatchObject({ reason: 'egress_limit' });
    await expect(ask('b1:right')).resolves.toMatchObject({ sandboxId: 'b1' });
    await expect(ask('b2:right', '127.0.0.8')).resolves.toMatchObject({ sandboxId: 'b2' });
    now += 3_000;
    for (let guess = 0; guess < 100; guess += 1) await ask(`b1:later${guess}`).catch(() => undefined);
    expect(asked).toHaveLength(24);
    const count = (outcome: string) => outcomes.filter((one) => one === outcome).length;
    expect(['known', 'cached', 'unknown', 'limited'].map(count)).toEqual([2, 1, 22, 179]);
  });

  it('that are refused cost no look-up where they say nothing that could be right', async () => {
    for (const user of ['', 'b1', ':right', 'b1:']) await expect(ask(user)).rejects.toThrow();
    expect([asked, outcomes]).toEqual([[], []]);
  });
});
