import { createHmac, timingSafeEqual } from 'node:crypto';
import type { KeyRing } from '@margay/platform';

const PURPOSE = 'egress-token.v1';

/**
 * What a sandbox shows the egress proxy besides its name. It lies in the sandbox's environment, so it is no secret to
 * the model; it is good from the address of that sandbox only.
 */
export class EgressTokens {
  private readonly key: Buffer;

  /** All replicas have the same key, so they make and accept the same tokens. */
  constructor(keys: KeyRing) {
    this.key = keys.deriveSecret(PURPOSE);
  }

  tokenOf(sandboxId: string): string {
    return createHmac('sha256', this.key).update(sandboxId).digest('base64url');
  }

  isTokenOf(sandboxId: string, token: string): boolean {
    const [given, right] = [Buffer.from(token), Buffer.from(this.tokenOf(sandboxId))];
    return given.length === right.length && timingSafeEqual(given, right);
  }
}
