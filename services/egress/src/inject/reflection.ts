import { Transform, type TransformCallback } from 'node:stream';
import { UnavailableError, type MargayError } from '@margay/errors';

/** Shorter ones would be met by chance. */
const MIN_LENGTH = 4;

/** A secret as hosts may give it back: as it is and in the encodings that are common in answers. */
export function spellingsOf(secrets: readonly string[]): Buffer[] {
  const all = secrets.filter((secret) => secret !== '').flatMap((secret) => [...spellings(secret)]);
  const unique = new Map(all.map((spelling) => [spelling.toString('latin1'), spelling]));
  return [...unique.values()].filter(({ length }) => length >= MIN_LENGTH);
}

function spellings(secret: string): Buffer[] {
  const bytes = Buffer.from(secret);
  const hex = bytes.toString('hex');
  const percent = encodeURIComponent(secret);
  const json = JSON.stringify(secret).slice(1, -1);
  const form = new URLSearchParams({ '': secret }).toString().slice(1);
  const cores = [0, 1, 2].map((offset) => base64Core(bytes, offset));
  const texts = [
    ...[json, json.replaceAll('/', '\\/'), ...jsonInAscii(json), ...HTML_QUOTES.map((quotes) => html(secret, quotes))],
    ...[hex, hex.toUpperCase()],
    ...[percent, percent.replaceAll('%20', '+'), form, form.replaceAll('+', '%20'), hex.replace(/../g, '%$&')].flatMap(
      bothCases,
    ),
    ...cores.flatMap((core) => [core, urlSafe(core)]),
  ];
  const wide = Buffer.from(secret, 'utf16le');
  return [bytes, wide, Buffer.from(wide).swap16(), ...texts.map((text) => Buffer.from(text))];
}

/** Hexadecimal digits of percent-encoding are written both ways. */
const bothCases = (text: string): string[] => [
  text.replace(/%../g, (digits) => digits.toUpperCase()),
  text.replace(/%../g, (digits) => digits.toLowerCase()),
];

/** How languages write both quotes in HTML. */
const HTML_QUOTES = [
  { '"': '&quot;', "'": '&#39;' },
  { '"': '&#34;', "'": '&#39;' },
  { '"': '&quot;', "'": '&#x27;' },
  { '"': '&quot;', "'": '&#039;' },
  { '"': '&quot;', "'": "'" },
];

function html(text: string, quotes: Record<string, string>): string {
  const names: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', ...quotes };
  return text.replace(/[&<>"']/g, (character) => names[character] ?? character);
}

/** Writers of JSON escape all that is not ASCII, or what HTML would take for its own. */
function jsonInAscii(json: string): string[] {
  const escaped = (text: string, which: RegExp): string =>
    text.replace(which, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);
  const [ascii, safe] = [/[^\x20-\x7e]/g, /[&<>]/g];
  return [escaped(json, ascii), escaped(json, safe), escaped(escaped(json, ascii), safe)];
}

/** The characters of base64 that depend on these bytes alone when so many others of a group of three come before. */
function base64Core(bytes: Buffer, offset: number): string {
  const encoded = Buffer.concat([Buffer.alloc(offset), bytes])
    .toString('base64')
    .replace(/=+$/, '');
  return encoded.slice(Math.ceil((offset * 8) / 6), Math.floor(((offset + bytes.length) * 8) / 6));
}

const urlSafe = (base64: string): string => base64.replaceAll('+', '-').replaceAll('/', '_');

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
