const REDACTED = '[redacted]';
const MAX_DEPTH = 6;

/** Field names (lower case, without separators) whose values are never logged, at any depth. */
const SECRET_FIELDS = new Set([
  ...['authorization', 'proxyauthorization', 'cookie', 'setcookie', 'apikey', 'xapikey', 'secret', 'clientsecret'],
  ...['password', 'token', 'accesstoken', 'refreshtoken', 'ticket', 'grant', 'privatekey', 'credentials', 'headers'],
  ...['prompt', 'messages', 'content', 'text', 'query', 'querystring', 'search', 'body', 'payload', 'frames'],
  ...[
    'input',
    'toolinput',
    'inputjson',
    'args',
    'arguments',
    'argumentsjson',
    'output',
    'result',
    'toolresult',
    'resultjson',
  ],
]);

// Each runs in linear time, also on hostile texts.
const SECRET_TEXTS: [RegExp, string][] = [
  [/\bmk_([a-z0-9]{1,8})_([0-9a-f]{32})_[A-Za-z0-9_-]{43}/g, `mk_$1_$2_${REDACTED}`],
  [/\b(mat|mt)_[A-Za-z0-9_-]{16,}/g, `$1_${REDACTED}`],
  [/\bsk-[A-Za-z0-9_-]{8,}/g, `sk-${REDACTED}`],
  [/\b(Bearer|Basic)\s{1,4}[A-Za-z0-9._~+/=-]{8,}/gi, `$1 ${REDACTED}`],
  [/\beyJ[A-Za-z0-9_-]{8,1000}\.[A-Za-z0-9_-]{1,8000}\.[A-Za-z0-9_-]+/g, REDACTED],
  // Tokens of well-known hosts, and keys.
  [/\b(gh[opsur]|github_pat|glpat|xox[a-z])[-_][A-Za-z0-9_-]{8,}/g, `$1-${REDACTED}`],
  [/\b(AKIA|ASIA)[A-Z0-9]{16}\b/g, `$1${REDACTED}`],
  [
    /-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----(?:[A-Za-z0-9+/=\\\s:,]|-(?!----))*(?:-----END [A-Z ]{0,20}PRIVATE KEY-----)?/g,
    REDACTED,
  ],
  // User and password of a connection text.
  [/\b([a-z][a-z0-9+.-]{0,20}:\/\/)[^\s/@"\\]{1,512}@/gi, `$1${REDACTED}@`],
  // The query of an address or of a path.
  [/(?<=[\w/%-])\?[^\s"'\\]+/g, `?${REDACTED}`],
  // Fields bound by child loggers, which pino writes before any formatter sees them.
  [
    /"(x-api-key|api_?key|authorization|cookie|password|secret|token|ticket|grant)":"(?:[^"\\]|\\.)*"/gi,
    `"$1":"${REDACTED}"`,
  ],
];

/** Replaces keys, bearer tokens, passwords of addresses and query strings inside a text (also in a finished JSON line). */
export function scrubText(text: string): string {
  return SECRET_TEXTS.reduce((scrubbed, [pattern, replacement]) => scrubbed.replace(pattern, replacement), text);
}

/** A copy of the fields with secret ones replaced; errors and other class instances stay for their serializers. */
export function scrubFields(fields: Record<string, unknown>, depth = 0): Record<string, unknown> {
  const copy: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(fields)) {
    copy[name] = isSecretField(name) && value != null ? REDACTED : scrubValue(value, depth + 1);
  }
  return copy;
}

function scrubValue(value: unknown, depth: number): unknown {
  if (Array.isArray(value)) return depth > MAX_DEPTH ? REDACTED : value.map((item) => scrubValue(item, depth + 1));
  if (!isPlainObject(value)) return value;
  return depth > MAX_DEPTH ? REDACTED : scrubFields(value, depth);
}

function isPlainObject(value: unknown): value is Record<string, unknown> {
  if (typeof value !== 'object' || value === null) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}

const isSecretField = (name: string) => SECRET_FIELDS.has(name.toLowerCase().replace(/[-_]/g, ''));
