import { STATUS_CODES } from 'node:http';
import type { MargayError } from '@margay/errors';
import { EGRESS_HEADER } from './headers';

/** What clients are answered for each reason (cluster §1.10); `egress_connect` is a host that takes no connection. */
const STATUSES: Readonly<Record<string, number>> = {
  egress_denied: 403,
  egress_identity: 407,
  egress_limit: 429,
  egress_address: 502,
  egress_resolve: 502,
  egress_connect: 502,
  egress_reflection: 502,
  egress_unavailable: 503,
  egress_timeout: 504,
};

/** Whether clients are told this reason; all others are faults of ours or of the host. */
export function isRefusal({ reason }: MargayError): boolean {
  return Object.hasOwn(STATUSES, reason);
}

export interface Refusal {
  status: number;
  headers: Record<string, string>;
  body: string;
}

export function refusalOf(error: MargayError): Refusal {
  const status = STATUSES[error.reason] ?? 500;
  const body = `${error.message}\n`;
  return {
    status,
    headers: {
      [EGRESS_HEADER]: error.reason,
      'Content-Type': 'text/plain; charset=utf-8',
      'Content-Length': String(Buffer.byteLength(body)),
      Connection: 'close',
      ...(status === 407 && { 'Proxy-Authenticate': 'Basic realm="margay"' }),
    },
    body,
  };
}

/** The same as bytes, for a tunnel that is not open yet. */
export function refusalBytes({ status, headers, body }: Refusal): string {
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}`);
  return [`HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ''}`, ...lines, '', body].join('\r\n');
}
