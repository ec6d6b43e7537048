import type { KeyRing } from '@margay/platform';

const SERVICE = 'tool-executor';

/** What sandboxes are told of the keys that sign grants, as it is when one is made. */
export class GrantKeys {
  constructor(private readonly keys: Pick<KeyRing, 'signingKeyId' | 'publicKeysOf'>) {}

  /** The newest key whose grants they are to take. */
  get kid(): string {
    return this.keys.signingKeyId ?? '';
  }

  /** All keys whose grants they are to take: public ones, PEM, one after the other. */
  get trust(): string {
    return this.keys.publicKeysOf(SERVICE);
  }
}
