import { PermissionDeniedError } from '@margay/errors';
import type { Target } from '../policy/judge';
import { requestedHostName } from '../policy/host-name';

const HTTP_PORT = 80;
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
