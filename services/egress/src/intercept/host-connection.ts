import type { Socket } from 'node:net';
import { connect, createSecureContext, getCACertificates, type SecureContext, type TLSSocket } from 'node:tls';
import { DeadlineExceededError, UnavailableError, type MargayError } from '@margay/errors';

const HANDSHAKE_MS = 10_000;

/** Whom hosts may be vouched for by: what this machine trusts, and what the operator added. */
export function hostTrust(extraPem: string | undefined): SecureContext {
  if (extraPem === undefined) return createSecureContext({});
  return createSecureContext({ ca: [...getCACertificates('default'), extraPem] });
}

/** Speaks TLS to the host on a connection to one of its addresses. @throws UnavailableError `egress_connect` */
export async function encrypt(socket: Socket, host: string, secureContext: SecureContext): Promise<TLSSocket> {
  const secure = connect({
    socket,
    servername: host,
    ALPNProtocols: ['http/1.1'],
    secureContext,
    minVersion: 'TLSv1.2',
  });
  try {
    await new Promise<void>((resolve, reject) => {
      const late = new DeadlineExceededError('egress_timeout', `${host} did not agree on encryption in time.`);
      const timer = setTimeout(() => reject(late), HANDSHAKE_MS);
      const done = (then: () => void) => () => {
        clearTimeout(timer);
        then();
      };
      secure.once('secureConnect', done(resolve));
      secure.once('error', (error) => done(() => reject(untrusted(host, error)))());
      secure.once(
        'close',
        done(() => reject(untrusted(host))),
      );
    });
    secure.on('error', () => undefined); // its end is noticed where it is read
    secure.once('close', () => socket.destroy());
    return secure;
  } catch (error) {
    secure.on('error', () => undefined);
    secure.destroy();
    socket.destroy();
    throw error;
  }
}

function untrusted(host: string, cause?: Error): MargayError {
  const why = (cause as NodeJS.ErrnoException | undefined)?.code ?? 'it broke off';
  return new UnavailableError('egress_connect', `No encrypted connection to ${host}: ${why}.`, { cause });
}
