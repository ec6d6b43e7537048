import { Transform, type TransformCallback } from 'node:stream';
import { UnavailableError, type MargayError } from '@margay/errors';

export const holdsOne = (spellings: readonly Buffer[], bytes: Buffer): boolean =>
  spellings.some((spelling) => bytes.includes(spelling));

export function reflected(host: string): MargayError {
  const message = `The answer of ${host} holds the credential that the proxy had added; it was cut off.`;
  return new UnavailableError('egress_reflection', message);
}

/** Passes an answer on as long as it does not hold the secret; what may be its beginning waits for what follows. */
export class ReflectionGuard extends Transform {
  private held: Buffer = Buffer.alloc(0);

  constructor(
    private readonly spellings: readonly Buffer[],
    private readonly host: string,
  ) {
    super();
  }

  override _transform(chunk: Buffer, _encoding: BufferEncoding, done: TransformCallback): void {
    const bytes = this.held.length > 0 ? Buffer.concat([this.held, chunk]) : chunk;
    if (holdsOne(this.spellings, bytes)) return done(reflected(this.host));
    const kept = bytes.length - this.beginningAtEnd(bytes);
    this.held = bytes.subarray(kept);
    done(null, bytes.subarray(0, kept));
  }

  override _flush(done: TransformCallback): void {
    done(null, this.held);
  }

  /** Length of the longest end of these bytes that a spelling begins with. */
  private beginningAtEnd(bytes: Buffer): number {
    return Math.max(0, ...this.spellings.map((spelling) => overlap(bytes, spelling)));
  }
}

/** Goes from one place of the first byte to the next: secrets may be long, and answers have many chunks. */
function overlap(bytes: Buffer, spelling: Buffer): number {
  const first = spelling.subarray(0, 1);
  let at = bytes.indexOf(first, Math.max(0, bytes.length - spelling.length + 1));
  while (at >= 0 && bytes.compare(spelling, 0, bytes.length - at, at) !== 0) at = bytes.indexOf(first, at + 1);
  return at < 0 ? 0 : bytes.length - at;
}
