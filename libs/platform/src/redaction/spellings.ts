/** Shorter ones would be met by chance. */
const MIN_LENGTH = 4;

/** Secrets as programs and hosts write them: as they are, and in the encodings that are common in texts. */
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
