import type { IncomingMessage } from 'node:http';
import { PermissionDeniedError } from '@margay/errors';
import type { Target } from '../policy/judge';
import { normalHostName, requestedHostName } from '../policy/host-name';

const HTTP_PORT = 80;
const HTTPS_PORT = 443;
const MAX_PORT = 65_535;

export interface ForwardTarget extends Target {
  request: { method: string; path: string };
  /** Path and query, as the host gets them. */
  resource: string;
  hostHeader: string;
}

/** @throws PermissionDeniedError `egress_denied` for all but `http://name[:port]/…` */
export function forwardTarget(method: string, url: string): ForwardTarget {
  const parsed = URL.canParse(url) ? new URL(url) : undefined;
  if (parsed?.protocol === 'https:')
    throw new PermissionDeniedError('egress_denied', 'Encrypted requests need a tunnel: use CONNECT.');
  if (parsed?.protocol !== 'http:' || parsed.username !== '' || parsed.password !== '')
    throw new PermissionDeniedError('egress_denied', 'This is a proxy: ask for http://host/path, without a user.');
  const host = requestedHostName(parsed.hostname);
  return {
    host,
    port: parsed.port === '' ? HTTP_PORT : Number(parsed.port),
    request: { method, path: parsed.pathname },
    resource: `${parsed.pathname}${parsed.search}`,
    hostHeader: parsed.port === '' ? host : `${host}:${parsed.port}`,
  };
}

/** @throws PermissionDeniedError `egress_denied` for all but `name:port` */
export function tunnelTarget(authority: string): Target {
  const [, name = '', port = '0'] = /^([^\s:@/[\]]+):(\d{1,5})$/.exec(authority) ?? [];
  const host = requestedHostName(name);
  if (Number(port) >= 1 && Number(port) <= MAX_PORT) return { host, port: Number(port) };
  throw new PermissionDeniedError('egress_denied', 'A tunnel leads to a port from 1 to 65535.');
}

/**
 * A request that was read in a tunnel. It must be for the host that the tunnel was opened to: proxies and servers behind
 * that host may go by what the request says.
 * @throws PermissionDeniedError `egress_denied`
 */
export function requestTarget(
  { host, port }: Target,
  { method = '', url = '', rawHeaders }: Pick<IncomingMessage, 'method' | 'url' | 'rawHeaders'>,
): ForwardTarget {
  const [named, ...more] = rawHeaders.filter(
    (_, index) => rawHeaders[index - 1]?.toLowerCase() === 'host' && index % 2,
  );
  const [, name = '', namedPort = String(HTTPS_PORT)] = /^([^\s:@/[\]]+)(?::(\d{1,5}))?$/.exec(named ?? '') ?? [];
  if (more.length > 0 || normalHostName(name) !== host || Number(namedPort) !== port)
    throw new PermissionDeniedError('egress_denied', `The request names another host than ${host}:${port}.`);
  // With its base in front the path cannot name a host of its own; dots in it are resolved, as servers do.
  if (!url.startsWith('/') || !URL.canParse(`https://${host}${url}`))
    throw new PermissionDeniedError('egress_denied', 'In a tunnel, ask for a path.');
  const { pathname, search } = new URL(`https://${host}${url}`);
  return {
    host,
    port,
    isEncrypted: true,
    request: { method, path: pathname },
    resource: `${pathname}${search}`,
    hostHeader: port === HTTPS_PORT ? host : `${host}:${port}`,
  };
}
