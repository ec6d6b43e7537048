import {
  credentials,
  experimental,
  ServerCredentials,
  type ChannelCredentials,
  type ChannelOptions,
} from '@grpc/grpc-js';
import type { Principal } from '@margay/contracts';
import { PermissionDeniedError } from '@margay/errors';
import type { PeerCertificate } from 'node:tls';
import { LRUCache } from 'lru-cache';
import { callersOf, peerName, serverOf } from './peers';
import type { TlsIdentity } from './tls-identity';

const DNS = 'DNS:';
const KNOWN_PEERS = 10_000;
/** Far less than it takes for an address to go over to another pod. */
const KNOWN_FOR_MS = 5_000;

/** Whether connections at this address are encrypted: the file system decides who reaches a Unix socket. */
export function isEncrypted(tls: TlsIdentity | undefined, address: string): tls is TlsIdentity {
  return tls !== undefined && !address.startsWith('unix:');
}

/** Of a server: whoever connects must show a certificate of the same authority. */
export function serverCredentials(tls: TlsIdentity | undefined, listen: string): ServerCredentials {
  if (!isEncrypted(tls, listen)) return ServerCredentials.createInsecure();
  return experimental.createCertificateProviderServerCredentials(tls, tls, true);
}

/** Of a client that calls the contracts of an audience: only the service they belong to may answer, at whatever address. */
export function channelCredentials(
  tls: TlsIdentity | undefined,
  address: string,
  audience: string,
): { credentials: ChannelCredentials; options: ChannelOptions } {
  if (!isEncrypted(tls, address)) return { credentials: credentials.createInsecure(), options: {} };
  return {
    credentials: experimental.createCertificateProviderChannelCredentials(tls, tls),
    options: { 'grpc.ssl_target_name_override': peerName(serverOf(audience)) },
  };
}

/** The part of a server's call that tells who is at its other end. */
export interface PeerCall {
  /** Address and port. */
  getPeer(): string;
  getAuthContext(): { sslPeerCertificate?: PeerCertificate };
}

/**
 * Refuses callers that have no business with a service, though the same authority vouches for them, and principals that
 * somebody else has signed than who presents them: a stolen token or key is of no use without the certificate.
 */
export class CallerCheck {
  /** Reading a certificate takes a tenth of a millisecond, and a connection carries many calls. */
  private readonly known = new LRUCache<string, ReadonlySet<string>>({ max: KNOWN_PEERS, ttl: KNOWN_FOR_MS });

  constructor(private readonly service: string) {}

  /** @throws PermissionDeniedError `caller_refused` */
  require(call: PeerCall): void {
    const names = this.namesOf(call);
    if (callersOf(this.service).some((caller) => names.has(peerName(caller)))) return;
    throw refused('caller_refused', `${this.service} is not called by who shows a certificate for ${listOf(names)}.`);
  }

  /** @throws PermissionDeniedError `issuer_not_caller` */
  requireIssuer(call: PeerCall, { iss }: Pick<Principal, 'iss'>): void {
    const names = this.namesOf(call);
    if (names.has(peerName(iss))) return;
    throw refused(
      'issuer_not_caller',
      `A principal that ${iss} has signed is not taken from who shows a certificate for ${listOf(names)}.`,
    );
  }

  private namesOf(call: PeerCall): ReadonlySet<string> {
    const peer = call.getPeer();
    const known = this.known.get(peer);
    if (known) return known;
    const { sslPeerCertificate: certificate } = call.getAuthContext();
    const all = certificate?.subjectaltname?.split(', ') ?? [];
    const names = new Set(all.filter((name) => name.startsWith(DNS)).map((name) => name.slice(DNS.length)));
    this.known.set(peer, names);
    return names;
  }
}

const refused = (reason: string, message: string) => new PermissionDeniedError(reason, message);
const listOf = (names: ReadonlySet<string>): string => [...names].join(', ') || 'nobody';
