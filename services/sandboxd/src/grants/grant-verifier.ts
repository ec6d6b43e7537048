import { createPublicKey, type KeyObject } from 'node:crypto';
import { SandboxGrant } from '@margay/contracts';
import { PermissionDeniedError, UnauthenticatedError, type MargayError } from '@margay/errors';
import { compactVerify } from 'jose';
import { LRUCache } from 'lru-cache';
import { z } from 'zod';

/** Sandboxes may lag behind by as much. */
const LEEWAY_SECONDS = 30;
const CACHED_GRANTS = 64;

const Claims = SandboxGrant.extend({
  aud: z.union([z.string(), z.array(z.string())]).transform((audience) => [audience].flat()),
  exp: z.number(),
});
type Claims = z.infer<typeof Claims>;

export interface GrantVerifierOptions {
  sandboxId: string;
  /** Public keys in SPKI PEM, one after the other. */
  trust: string;
  now?: () => number;
}

/** Opens sandbox grants: compact JWS, EdDSA, made for this sandbox, not expired (cluster §1.4). */
export class GrantVerifier {
  private readonly keys: KeyObject[];
  private readonly now: () => number;
  private readonly opened = new LRUCache<string, Claims>({ max: CACHED_GRANTS });

  constructor(private readonly options: GrantVerifierOptions) {
    const pems = options.trust.match(/-----BEGIN PUBLIC KEY-----[^-]+-----END PUBLIC KEY-----/g) ?? [];
    this.keys = pems.map((pem) => createPublicKey(pem));
    this.now = options.now ?? Date.now;
  }

  async verify(token: string | undefined): Promise<SandboxGrant> {
    if (token === undefined) throw refused('grant_missing', 'The call carries no sandbox grant.');
    const claims = this.opened.get(token) ?? (await this.open(token));
    if (claims.exp + LEEWAY_SECONDS <= this.now() / 1_000)
      throw refused('grant_expired', 'The sandbox grant has expired.');
    if (!claims.aud.includes(this.options.sandboxId)) {
      throw new PermissionDeniedError(
        'grant_audience',
        `The grant was not made for sandbox ${this.options.sandboxId}.`,
      );
    }
    return claims;
  }

  private async open(token: string): Promise<Claims> {
    for (const key of this.keys) {
      const payload = await compactVerify(token, key, { algorithms: ['EdDSA'] }).then(
        (verified) => (verified.protectedHeader.typ === 'margay-sandbox-grant' ? verified.payload : undefined),
        () => undefined, // another key may have signed it
      );
      const parsed = payload && Claims.safeParse(JSON.parse(Buffer.from(payload).toString('utf8')));
      if (!parsed?.success) continue;
      this.opened.set(token, parsed.data);
      return parsed.data;
    }
    throw refused('grant_invalid', 'The sandbox grant is not validly signed.');
  }
}

function refused(reason: string, message: string): MargayError {
  return new UnauthenticatedError(reason, message);
}
