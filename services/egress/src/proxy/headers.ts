/** What belongs to one connection (RFC 9110 §7.6.1), or to this proxy. */
const HOP_BY_HOP = new Set([
  ...['connection', 'proxy-connection', 'keep-alive', 'te', 'trailer', 'transfer-encoding', 'upgrade', 'expect'],
  ...['proxy-authorization', 'proxy-authenticate', 'proxy-authentication-info'],
]);

/** By these some servers go instead of the method, the path and the host that were judged. */
const OVERRIDES = [
  ...[
    'x-http-method-override',
    'x-http-method',
    'x-method-override',
    'x-original-url',
    'x-original-uri',
    'x-rewrite-url',
  ],
  ...['x-forwarded-host', 'x-original-host', 'x-host', 'x-forwarded-server', 'forwarded'],
];
const NOT_SENT = new Set(['host', ...OVERRIDES]);

export const EGRESS_HEADER = 'X-Margay-Egress';

/** Headers for the host: those of the client but for the connection's own; the host is the one that was judged. */
export function requestHeaders(raw: readonly string[], host: string): string[] {
  const isChunked = pairs(raw).some(([name]) => name.toLowerCase() === 'transfer-encoding');
  const kept = withoutHops(raw).filter(([name]) => !NOT_SENT.has(name.toLowerCase()));
  return ['Host', host, ...kept.flat(), ...(isChunked ? ['Transfer-Encoding', 'chunked'] : []), 'Connection', 'close'];
}

/** Headers for the client; a host cannot speak in the name of the proxy. */
export function responseHeaders(raw: readonly string[]): string[] {
  return withoutHops(raw).filter(([name]) => name.toLowerCase() !== EGRESS_HEADER.toLowerCase()).flat(); // prettier-ignore
}

/** The same list without these, in small letters. */
export function dropHeaders(headers: readonly string[], names: readonly string[]): string[] {
  const dropped = new Set(names);
  return pairs(headers)
    .filter(([name]) => !dropped.has(name.toLowerCase()))
    .flat();
}

function withoutHops(raw: readonly string[]): [string, string][] {
  const all = pairs(raw);
  const named = all.filter(([name]) => name.toLowerCase() === 'connection').flatMap(([, value]) => value.split(','));
  const dropped = new Set(named.map((name) => name.trim().toLowerCase()));
  // Naming these as the connection's own must not take the framing away.
  for (const name of ['content-length', 'host']) dropped.delete(name);
  return all.filter(([name]) => !HOP_BY_HOP.has(name.toLowerCase()) && !dropped.has(name.toLowerCase()));
}

function pairs(raw: readonly string[]): [string, string][] {
  return Array.from({ length: raw.length / 2 }, (_, index) => [raw[index * 2] ?? '', raw[index * 2 + 1] ?? '']);
}
