import type { SecretMatcher } from './secret-matcher';

/** Masks a text that comes in pieces: what may be the beginning of a secret waits for what follows. */
export class SecretStream {
  private held: Buffer = Buffer.alloc(0);

  constructor(
    private readonly matcher: SecretMatcher,
    private readonly owners: readonly string[],
    private readonly onFound: (names: ReadonlySet<string>) => void = () => undefined,
  ) {}

  /** @returns what can be passed on; may be empty */
  push(chunk: Uint8Array): Buffer {
    if (this.matcher.isEmpty) return Buffer.from(chunk);
    const { value, names, rest } = this.matcher.maskSome(Buffer.concat([this.held, chunk]), this.owners);
    this.held = rest;
    if (names.size > 0) this.onFound(names);
    return value;
  }

  /** @returns what was held back; nothing follows */
  end(): Buffer {
    const { value, names } = this.matcher.maskBytes(this.held, this.owners);
    this.held = Buffer.alloc(0);
    if (names.size > 0) this.onFound(names);
    return value;
  }
}
