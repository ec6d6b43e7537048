import { hkdfSync } from 'node:crypto';

/** A hash of any part of a text in constant time, after one pass; nobody without the key can aim at its values. */
export class RollingHash {
  private readonly base: number;
  private prefixes = new Uint32Array(1_024);

  constructor(key: Uint8Array) {
    // 5 modulo 8: its powers are as many as they can be.
    this.base = (Buffer.from(hkdfSync('sha256', key, '', 'rolling hash', 4)).readUInt32LE() & ~7) | 5;
  }

  power(length: number): number {
    let power = 1;
    for (let n = 0; n < length; n += 1) power = Math.imul(power, this.base);
    return power >>> 0;
  }

  /** Of all of it. */
  of(bytes: Uint8Array): number {
    let hash = 0;
    for (const byte of bytes) hash = (Math.imul(hash, this.base) + byte) | 0;
    return hash >>> 0;
  }

  /** Goes over the text, telling the hash of each window of this length; `part` then knows all of its parts. */
  scan(bytes: Uint8Array, window: number, visit: (at: number, hash: number) => void): void {
    const { base } = this;
    const power = this.power(window);
    if (this.prefixes.length <= bytes.length) this.prefixes = new Uint32Array(2 * bytes.length + 2);
    const { prefixes } = this;
    for (let n = 0; n < bytes.length; n += 1) {
      const hash = Math.imul(prefixes[n] as number, base) + (bytes[n] as number);
      prefixes[n + 1] = hash;
      const at = n + 1 - window;
      if (at >= 0) visit(at, (hash - Math.imul(prefixes[at] as number, power)) >>> 0);
    }
  }

  /** Of a part of the text that was scanned last. */
  part(at: number, length: number, power: number): number {
    return ((this.prefixes[at + length] as number) - Math.imul(this.prefixes[at] as number, power)) >>> 0;
  }
}
