import { createHash, X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { connect } from 'node:tls';
import { PermissionDeniedError, UnavailableError } from '@margay/errors';

const HANDSHAKE_MS = 5_000;

export interface PinnedCertificate {
  pem: string;
  /** SHA-256 in hex. */
  fingerprint: string;
}

/** The one that was pinned, if it was kept whole: then nobody needs to ask for it. */
export function knownCertificate(pinned: {
  fingerprint?: string | undefined;
  certificate?: string | undefined;
}): PinnedCertificate | undefined {
  const { fingerprint, certificate } = pinned;
  if (!fingerprint || !certificate) return undefined;
  const isSame = fingerprintOf(new X509Certificate(certificate).raw) === fingerprint;
  return isSame ? { pem: certificate, fingerprint } : undefined;
}

/**
 * The certificate that a sandbox shows. Sandboxes make their own, so the first contact decides what is pinned; a reused
 * address cannot answer for another sandbox afterwards.
 * @throws PERMISSION_DENIED `sandbox_certificate` if it is not the one pinned
 */
export async function pinnedCertificate(address: string, pinned?: string): Promise<PinnedCertificate> {
  const der = await shownBy(address);
  const fingerprint = fingerprintOf(der);
  if (pinned !== undefined && pinned !== fingerprint) {
    throw new PermissionDeniedError(
      'sandbox_certificate',
      `At ${address} another sandbox answers than the one claimed.`,
    );
  }
  return { pem: new X509Certificate(der).toString(), fingerprint };
}

const fingerprintOf = (der: Buffer): string => createHash('sha256').update(der).digest('hex');

async function shownBy(address: string): Promise<Buffer> {
  const at = address.lastIndexOf(':');
  const socket = connect({
    host: address.slice(0, at).replace(/^\[|\]$/g, ''),
    port: Number(address.slice(at + 1)),
    ALPNProtocols: ['h2'],
    // Nobody issued it; it is compared by the caller.
    rejectUnauthorized: false,
  });
  try {
    await once(socket, 'secureConnect', { signal: AbortSignal.timeout(HANDSHAKE_MS) });
    return socket.getPeerX509Certificate()?.raw ?? Buffer.alloc(0);
  } catch (cause) {
    throw new UnavailableError('sandbox_unreachable', `The sandbox at ${address} does not answer yet.`, { cause });
  } finally {
    socket.destroy();
  }
}
