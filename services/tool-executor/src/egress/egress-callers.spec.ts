import { generateKeyPairSync } from 'node:crypto';
import { KeyRing } from '@margay/platform';
import { EgressCallers } from './egress-callers';
import { EgressTokens } from './egress-tokens';

const { privateKey } = generateKeyPairSync('ed25519');
const tokens = new EgressTokens(new KeyRing({ service: 'tool-executor', trust: {}, privateKey }));

describe('who speaks to the egress proxy', () => {
  const callers = new EgressCallers(tokens, async (sandboxId, sourceAddress) =>
    sandboxId === 'b1' && sourceAddress === '127.0.0.7'
      ? { tenantId: 't1', sandboxId, sessionId: 's1', sandboxClass: 'default' }
      : undefined,
  );
  const ask = (sandboxId: string, token: string, sourceAddress = '127.0.0.7') =>
    callers.resolve({ sandboxId, token, sourceAddress });

  it('is told by name, token and address together', async () => {
    expect(await ask('b1', tokens.tokenOf('b1'))).toEqual({ tenantId: 't1', sessionId: 's1', sandboxClass: 'default' });
    const refused = expect.objectContaining({ reason: 'egress_identity' }) as Error;
    await expect(ask('b1', tokens.tokenOf('b2'))).rejects.toEqual(refused);
    await expect(ask('b1', tokens.tokenOf('b1'), '127.0.0.8')).rejects.toEqual(refused);
    await expect(ask('b2', tokens.tokenOf('b2'))).rejects.toEqual(refused);
  });
});
