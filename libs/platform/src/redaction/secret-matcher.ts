import { RollingHash } from './rolling-hash';
import { macOf, SECRET_MIN_CHARS, startOf, WINDOW_BYTES, type SecretPrint } from './secret-prints';

const FILTER_BITS = 18;
const FILTER_MASK = 2 ** FILTER_BITS - 1;
/** Of one in UTF-8. */
const CHARACTER_MAX_BYTES = 4;

interface Known extends SecretPrint {
  power: number;
}

/** Where a secret stands. */
interface Hit {
  at: number;
  end: number;
  name: string;
}

export interface Masked<T> {
  value: T;
  /** Of the secrets that were found. */
  names: ReadonlySet<string>;
}

/**
 * Finds secrets in texts by their prints and writes `[secret:NAME]` instead; it holds no secret. Secrets of members are
 * looked for where their owner is named. Linear in the text, whatever that is.
 */
export class SecretMatcher {
  private readonly hash: RollingHash;
  private readonly byStart = new Map<number, Known[]>();
  private readonly filter = new Uint8Array(2 ** FILTER_BITS / 8);

  constructor(
    private readonly key: Uint8Array,
    prints: readonly SecretPrint[],
  ) {
    this.hash = new RollingHash(key);
    this.add(prints);
  }

  get isEmpty(): boolean {
    return this.byStart.size === 0;
  }

  /** Prints that were made with the same key. */
  add(prints: readonly SecretPrint[]): void {
    const powers = new Map<number, number>();
    for (const print of prints) {
      const power = powers.get(print.bytes) ?? this.hash.power(print.bytes);
      powers.set(print.bytes, power);
      const same = [...(this.byStart.get(print.start) ?? []), { ...print, power }];
      this.byStart.set(
        print.start,
        same.sort((a, b) => b.bytes - a.bytes),
      );
      const bit = print.start & FILTER_MASK;
      this.filter[bit >> 3] = (this.filter[bit >> 3] as number) | (1 << (bit & 7));
    }
  }

  maskText(text: string, owners: readonly string[] = []): Masked<string> {
    if (this.isEmpty || text.length < SECRET_MIN_CHARS) return { value: text, names: new Set() };
    const bytes = Buffer.from(text);
    const { value, names } = this.maskBytes(bytes, owners);
    return { value: names.size === 0 ? text : value.toString(), names };
  }

  /** All texts of a JSON value, the names of its fields included. What holds no secret is the same object. */
  maskValue<T>(value: T, owners: readonly string[] = []): Masked<T> {
    const names = new Set<string>();
    if (this.isEmpty) return { value, names };
    const mask = (text: string): string => {
      const masked = this.maskText(text, owners);
      for (const name of masked.names) names.add(name);
      return masked.value;
    };
    return { value: maskWithin(value, mask) as T, names };
  }

  /** A text that is JSON, and stays it. */
  maskJson(json: string, owners: readonly string[] = []): Masked<string> {
    if (this.maskText(json, owners).names.size === 0) return { value: json, names: new Set() };
    const { value, names } = this.maskValue(JSON.parse(json) as unknown, owners);
    return { value: JSON.stringify(value), names };
  }

  maskBytes(bytes: Buffer, owners: readonly string[]): Masked<Buffer> {
    const { hits } = this.find(bytes, owners);
    return { value: replaced(bytes, hits), names: new Set(hits.map(({ name }) => name)) };
  }

  /** As far as can be told before what follows is known; `rest` may begin with a secret. */
  maskSome(bytes: Buffer, owners: readonly string[]): Masked<Buffer> & { rest: Buffer } {
    const { hits, open } = this.find(bytes, owners);
    const known = characterStart(bytes, Math.min(open, bytes.length - WINDOW_BYTES + 1));
    const passed = hits.filter(({ at }) => at < known);
    const cut = Math.max(known, passed.at(-1)?.end ?? 0);
    const names = new Set(passed.map(({ name }) => name));
    return { value: replaced(bytes.subarray(0, cut), passed), names, rest: Buffer.from(bytes.subarray(cut)) };
  }

  private find(bytes: Buffer, owners: readonly string[]): { hits: Hit[]; open: number } {
    const candidates: { at: number; prints: Known[] }[] = [];
    this.hash.scan(bytes, WINDOW_BYTES, (at, windowHash) => {
      const start = startOf(windowHash);
      const bit = start & FILTER_MASK;
      if (((this.filter[bit >> 3] as number) & (1 << (bit & 7))) === 0) return;
      const prints = this.byStart.get(start);
      if (prints) candidates.push({ at, prints });
    });
    const hits: Hit[] = [];
    let open = bytes.length;
    for (const { at, prints } of candidates) {
      if (at < (hits.at(-1)?.end ?? 0)) continue;
      const meant = prints.filter(({ owner }) => owner === '' || owners.includes(owner));
      if (meant.some((print) => at + print.bytes > bytes.length)) open = Math.min(open, at);
      const print = meant.find((each) => this.stands(bytes, at, each));
      if (print) hits.push({ at, end: at + print.bytes, name: print.name });
    }
    return { hits, open };
  }

  private stands(bytes: Buffer, at: number, print: Known): boolean {
    const end = at + print.bytes;
    if (end > bytes.length || this.hash.part(at, print.bytes, print.power) !== print.whole) return false;
    return macOf(this.key, bytes.subarray(at, end)).equals(print.mac);
  }
}

function replaced(bytes: Buffer, hits: readonly Hit[]): Buffer {
  if (hits.length === 0) return bytes;
  const parts: Buffer[] = [];
  let from = 0;
  for (const { at, end, name } of hits) {
    parts.push(bytes.subarray(from, at), Buffer.from(`[secret:${name}]`));
    from = end;
  }
  return Buffer.concat([...parts, bytes.subarray(from)]);
}

/** Not within a character of UTF-8; what is none is cut anywhere. */
function characterStart(bytes: Buffer, from: number): number {
  const last = Math.max(0, from);
  for (let at = last; at >= 0 && last - at < CHARACTER_MAX_BYTES; at -= 1)
    if (((bytes[at] ?? 0) & 0xc0) !== 0x80) return at;
  return last;
}

function maskWithin(value: unknown, mask: (text: string) => string): unknown {
  if (typeof value === 'string') return mask(value);
  if (typeof value === 'number') return maskNumber(value, mask);
  if (Array.isArray(value)) {
    const items = value.map((item) => maskWithin(item, mask));
    return items.some((item, n) => item !== value[n]) ? items : value;
  }
  if (typeof value !== 'object' || value === null || !isPlain(value)) return value;
  const fields = Object.entries(value).map(([name, item]) => [mask(name), maskWithin(item, mask), name, item] as const);
  const isSame = fields.every(([name, item, oldName, oldItem]) => name === oldName && item === oldItem);
  return isSame ? value : Object.fromEntries(fields);
}

/** One that is a secret becomes a text. */
function maskNumber(value: number, mask: (text: string) => string): unknown {
  const text = String(value);
  const masked = text.length < SECRET_MIN_CHARS ? text : mask(text);
  return masked === text ? value : masked;
}

function isPlain(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}
