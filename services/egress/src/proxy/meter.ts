import { Transform, type TransformCallback } from 'node:stream';

/** Passes bytes on and counts them; counting may refuse. */
export class Meter extends Transform {
  constructor(private readonly count: (bytes: number) => void) {
    super();
  }

  override _transform(chunk: Buffer, _encoding: BufferEncoding, done: TransformCallback): void {
    try {
      this.count(chunk.length);
      done(null, chunk);
    } catch (error) {
      done(error as Error);
    }
  }
}
