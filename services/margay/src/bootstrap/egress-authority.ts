import { newAuthority } from '@margay/egress';
import { FailedPreconditionError } from '@margay/errors';
import type { Completion, SecretData } from './secrets';

/**
 * The authority by which the egress proxy reads requests. Sandboxes believe it, so it is made once.
 * @throws FailedPreconditionError `bad_authority` for half of one
 */
export const missingEgressAuthority =
  (now: number): Completion =>
  (existing): SecretData => {
    const { 'ca.pem': certificate, 'ca.key.pem': key } = existing;
    if (certificate && key) return {};
    if (certificate || key) {
      const message =
        'The secret of the egress authority lacks ca.pem or ca.key.pem; restore it, or delete it to have it made anew.';
      throw new FailedPreconditionError('bad_authority', message);
    }
    const { certificatePem, keyPem } = newAuthority(now);
    return { 'ca.pem': certificatePem, 'ca.key.pem': keyPem };
  };
