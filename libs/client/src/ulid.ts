const ALPHABET = '0123456789ABCDEFGHJKMNPQRSTVWXYZ';

/** A ULID: 48 bits of time, 80 of chance, 26 characters of Crockford's base 32 (ULID specification). */
export function ulid(nowMs: number): string {
  let time = '';
  for (let rest = nowMs; time.length < 10; rest = Math.floor(rest / 32)) time = ALPHABET[rest % 32] + time;
  const chance = Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => ALPHABET[byte % 32]);
  return time + chance.join('');
}
