import { createPrivateKey, X509Certificate } from 'node:crypto';
import { missingEgressAuthority } from './egress-authority';

describe('the authority of the egress proxy', () => {
  const made = missingEgressAuthority(Date.now())({});

  it('is made with its key, and stays', () => {
    const certificate = new X509Certificate(made['ca.pem'] ?? '');
    expect(certificate.ca).toBe(true);
    expect(certificate.checkPrivateKey(createPrivateKey(made['ca.key.pem'] ?? ''))).toBe(true);
    expect(missingEgressAuthority(Date.now())(made)).toEqual({});
  });

  it.each(['ca.pem', 'ca.key.pem'])('is not made over one that has lost %s', (name) => {
    const { [name]: _lost, ...rest } = made;
    expect(() => missingEgressAuthority(Date.now())(rest)).toThrow(
      expect.objectContaining({ reason: 'bad_authority' }),
    );
  });
});
