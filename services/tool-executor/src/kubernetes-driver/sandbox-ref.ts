import type { SandboxEndpoint, SandboxRef } from '../driver/sandbox-driver';
import { SANDBOX_PORT } from './labels';
import type { SandboxRow } from './sandbox-row';

export function refOf({ _id: sandboxId, tenantId, sessionId = '' }: SandboxRow): SandboxRef {
  return { sandboxId, tenantId, sessionId };
}

/** Its pod's own address: no Service stands before it. */
export function endpointOf({ ip = '', podUid = '', tlsFingerprint, tlsCertificate }: SandboxRow): SandboxEndpoint {
  const host = ip.includes(':') ? `[${ip}]` : ip;
  return {
    address: `${host}:${SANDBOX_PORT}`,
    audience: podUid,
    tls: { fingerprint: tlsFingerprint, certificate: tlsCertificate },
  };
}
