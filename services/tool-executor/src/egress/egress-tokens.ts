import { createHmac, timingSafeEqual } from 'node:crypto';
import type { KeyRing } from '@margay/platform';

const PURPOSE = 'egress-token.v1';

/**
 * What a sandbox shows the egress proxy besides its name. It lies in the sandbox's environment, so it is no secret to
 * the model; it is good from the address of that sandbox only.
 */
export class EgressTokens {
  /** All replicas have the same keys, so they make and accept the same tokens. */
  constructor(private readonly keys: KeyRing) {
    keys.deriveSecrets(PURPOSE); // without a key it fails now
  }

  tokenOf(sandboxId: string): string {
    return tokenBy(this.keys.deriveSecrets(PURPOSE)[0], sandboxId);
  }

  /** Also one that was made with a key before the present one, or by a replica that has the next one already. */
  async isTokenOf(sandboxId: string, token: string): Promise<boolean> {
    await this.keys.refresh();
    return this.keys.deriveSecrets(PURPOSE).some((key) => isSame(token, tokenBy(key, sandboxId)));
  }
}

function tokenBy(key: Buffer, sandboxId: string): string {
  return createHmac('sha256', key).update(sandboxId).digest('base64url');
}

function isSame(token: string, expected: string): boolean {
  const [given, right] = [Buffer.from(token), Buffer.from(expected)];
  return given.length === right.length && timingSafeEqual(given, right);
}
