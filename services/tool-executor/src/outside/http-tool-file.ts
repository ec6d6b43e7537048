import { readFileSync } from 'node:fs';
import { EffectClass } from '@margay/contracts';
import { InvalidArgumentError } from '@margay/errors';
import { z } from 'zod';

/** Set by us, or able to change how the request is read. */
const RESERVED_HEADERS = new Set([
  'connection',
  'content-length',
  'content-type',
  'expect',
  'host',
  'idempotency-key',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
]);

const HeaderValue = z.union([
  z.string().regex(/^[\t\x20-\x7e]*$/, 'must be printable ASCII'),
  /** The value is what the file holds, one trailing newline dropped, behind `prefix`. */
  z.strictObject({ file: z.string().min(1), prefix: z.string().default('') }),
]);
export type HeaderValue = z.infer<typeof HeaderValue>;

const Headers = z.record(z.string(), HeaderValue).superRefine((headers, context) => {
  for (const name of Object.keys(headers)) {
    const fault = faultOfHeader(name);
    if (fault !== undefined) context.addIssue({ code: 'custom', path: [name], message: fault });
    if (Object.keys(headers).some((other) => other !== name && other.toLowerCase() === name.toLowerCase()))
      context.addIssue({ code: 'custom', path: [name], message: 'stands there twice' });
  }
});

function faultOfHeader(name: string): string | undefined {
  if (!/^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}$/.test(name)) return 'is no header name';
  return RESERVED_HEADERS.has(name.toLowerCase()) ? 'is set by Margay' : undefined;
}

const HttpUrl = z.string().refine((text) => {
  const url = URL.parse(text);
  return url !== null && /^https?:$/.test(url.protocol) && url.username === '' && url.password === '';
}, 'must be an http or https URL without user name and password');

export const HttpToolSettings = z.strictObject({
  name: z.string().regex(/^[a-zA-Z][a-zA-Z0-9_-]{0,63}$/, 'must be 1 to 64 letters, digits, _ or -'),
  description: z.string().min(1).max(4_000),
  /** JSON Schema of the arguments, an object. */
  parameters: z.looseObject({ type: z.literal('object') }),
  url: HttpUrl,
  method: z.enum(['POST', 'PUT', 'PATCH', 'DELETE']).default('POST'),
  headers: Headers.default({}),
  effect: EffectClass,
  timeout_seconds: z.number().positive().max(600).default(60),
  /** `cancel`: an interrupt by the user ends a call under way; `block`: it ends by itself. */
  interrupt_behavior: z.enum(['block', 'cancel']).default('block'),
});
export type HttpToolSettings = z.infer<typeof HttpToolSettings>;

const HttpToolFile = z.array(HttpToolSettings).max(256);

/** Reads `MARGAY_HTTP_TOOLS_FILE`. @throws InvalidArgumentError naming fields, never values */
export function readHttpTools(file: string, takenNames: ReadonlySet<string>): HttpToolSettings[] {
  const parsed = HttpToolFile.safeParse(readJson(file));
  if (!parsed.success) {
    const faults = parsed.error.issues.map(({ path, message }) => `${path.join('.') || 'the whole'}: ${message}`);
    throw bad(faults.slice(0, 10).join('; '));
  }
  const names = new Set(takenNames);
  for (const { name } of parsed.data) {
    if (names.has(name)) throw bad(`the name ${name} is taken by another tool`);
    names.add(name);
  }
  return parsed.data;
}

function readJson(file: string): unknown {
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (error) {
    throw bad(`it cannot be read (${(error as NodeJS.ErrnoException).code ?? 'unknown'})`);
  }
  try {
    return JSON.parse(text) as unknown;
  } catch {
    throw bad('it is not JSON'); // the parser's own message would quote it
  }
}

function bad(what: string): Error {
  return new InvalidArgumentError('bad_environment', `Cannot start, correct MARGAY_HTTP_TOOLS_FILE: ${what}.`);
}
