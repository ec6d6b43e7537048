import { text } from 'node:stream/consumers';
import { spellingsOf } from '@margay/platform';
import { ReflectionGuard } from './reflection';

const SECRET = `Canary+7/"x&y= z€!'(<~`;
const spellings = spellingsOf([SECRET]);

/** What passes of these chunks. */
async function pass(chunks: readonly Buffer[]): Promise<string> {
  const guard = new ReflectionGuard(spellings, 'git.example');
  const passed = text(guard);
  for (const chunk of chunks) guard.write(chunk);
  guard.end();
  return passed;
}

function cut(bytes: Buffer, size: number): Buffer[] {
  return Array.from({ length: Math.ceil(bytes.length / size) }, (_, at) => bytes.subarray(at * size, at * size + size));
}

const base64 = (before: string) => Buffer.from(`${before}${SECRET}tail`).toString('base64');
const hex = Buffer.from(SECRET).toString('hex');

describe('an answer', () => {
  it.each([
    ['itself', Buffer.from(SECRET)],
    ['base64', Buffer.from(base64(''))],
    ['base64 after one byte', Buffer.from(base64('u'))],
    ['base64 after two bytes', Buffer.from(base64('me'))],
    ['base64 for addresses', Buffer.from(base64('u:').replaceAll('+', '-').replaceAll('/', '_'))],
    ['hexadecimal', Buffer.from(hex)],
    ['large hexadecimal', Buffer.from(hex.toUpperCase())],
    ['percent', Buffer.from(encodeURIComponent(SECRET))],
    ['small percent', Buffer.from(encodeURIComponent(SECRET).replace(/%../g, (digits) => digits.toLowerCase()))],
    ['a form', Buffer.from(encodeURIComponent(SECRET).replaceAll('%20', '+'))],
    ['percent throughout', Buffer.from(hex.replace(/../g, '%$&'))],
    ['JSON', Buffer.from(JSON.stringify({ key: SECRET }))],
    ['JSON with escaped slashes', Buffer.from(JSON.stringify({ key: SECRET }).replaceAll('/', '\\/'))],
    ['a form as browsers write it', Buffer.from(String(new URLSearchParams({ key: SECRET })).slice(4))],
    ['JSON in ASCII', Buffer.from(JSON.stringify(SECRET).replace('€', '\\u20ac').slice(1, -1))],
    [
      'JSON that is safe in HTML',
      Buffer.from(JSON.stringify(SECRET).replace('&', '\\u0026').replace('<', '\\u003c').slice(1, -1)),
    ],
    ['HTML', Buffer.from(`Canary+7/&quot;x&amp;y= z€!&#39;(&lt;~`)],
    ['HTML of Go', Buffer.from(`Canary+7/&#34;x&amp;y= z€!&#39;(&lt;~`)],
    ['HTML of Python', Buffer.from(`Canary+7/&quot;x&amp;y= z€!&#x27;(&lt;~`)],
    ['UTF-16', Buffer.from(SECRET, 'utf16le')],
    ['UTF-16, high bytes first', Buffer.from(SECRET, 'utf16le').swap16()],
  ])('that holds the secret as %s is cut before it, wherever its chunks end', async (_, form) => {
    const bytes = Buffer.concat([Buffer.from('before '), form, Buffer.from(' after')]);
    for (const size of [1, 2, 3, 7, 16, 1_000]) await expect(pass(cut(bytes, size))).rejects.toMatchObject({ reason: 'egress_reflection' }); // prettier-ignore
  });

  it('without it passes whole, wherever its chunks end', async () => {
    const whole = `${SECRET.slice(0, -1)} ${hex.slice(0, -1)} ${base64('').slice(0, 12)} Canary CanaryCanary+7`;
    for (const size of [1, 2, 3, 7, 16, 1_000]) expect(await pass(cut(Buffer.from(whole), size))).toBe(whole);
  });

  it('goes on at once unless its end may be the beginning of the secret', async () => {
    const guard = new ReflectionGuard(spellings, 'git.example');
    guard.write(Buffer.from('data: 1\n\n'));
    expect(String(guard.read())).toBe('data: 1\n\n');
    guard.write(Buffer.from('data: Cana'));
    expect(String(guard.read())).toBe('data: ');
    guard.destroy();
  });
});
