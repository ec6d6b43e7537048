import { createPrivateKey, X509Certificate } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { experimental } from '@grpc/grpc-js';
import { FailedPreconditionError } from '@margay/errors';
import type { Logger } from '../logging/logger';

/** Mounted secrets change within a minute or so; a look costs three small reads. */
const LOOK_EVERY_MS = 5_000;
const FILES = ['tls.crt', 'tls.key', 'ca.crt'] as const;

interface Material {
  certificate: Buffer;
  privateKey: Buffer;
  authorities: Buffer;
  expiresAtMs: number;
}

/**
 * What a process shows to others, and whose word it takes: `tls.crt`, `tls.key` and `ca.crt` of a folder. A change is taken
 * for new connections once its parts fit together; those that are open go on. In the form that grpc-js reads credentials.
 */
export class TlsIdentity implements experimental.CertificateProvider {
  private unreadable: string | undefined;
  private readonly ofIdentity = new Set<experimental.IdentityCertificateUpdateListener>();
  private readonly ofAuthorities = new Set<experimental.CaCertificateUpdateListener>();
  private timer?: NodeJS.Timeout;

  private constructor(
    private readonly folder: string,
    private material: Material,
    private readonly logger: Logger,
  ) {}

  /** @throws FailedPreconditionError `tls_unreadable` */
  static async open(folder: string, logger: Logger): Promise<TlsIdentity> {
    return new TlsIdentity(folder, await read(folder), logger);
  }

  /** What is wrong with the files as they are now. */
  get fault(): string | undefined {
    if (this.unreadable !== undefined || this.expiresAtMs > Date.now()) return this.unreadable;
    return `The certificate in ${this.folder} (MARGAY_TLS_DIR) has expired: nobody takes new connections by it. Have "margay.cjs bootstrap" make a new one.`;
  }

  /** As it is now, in the form of `node:tls`: for connections that are not gRPC. */
  get pem(): { cert: Buffer; key: Buffer; ca: Buffer } {
    const { certificate: cert, privateKey: key, authorities: ca } = this.material;
    return { cert, key, ca };
  }

  /** Tells of each change, until the returned function is called. */
  onChange(listener: () => void): () => void {
    this.ofIdentity.add(listener);
    return () => void this.ofIdentity.delete(listener);
  }

  get expiresAtMs(): number {
    return this.material.expiresAtMs;
  }

  watch(): void {
    this.timer = setInterval(() => void this.refresh(), LOOK_EVERY_MS);
    this.timer.unref();
  }

  close(): void {
    clearInterval(this.timer);
  }

  /** Takes what the folder holds now, if it can be used. */
  async refresh(): Promise<void> {
    try {
      const next = await read(this.folder);
      this.unreadable = undefined;
      if (isSame(next, this.material)) return;
      this.material = next;
      this.logger.info({ expiresAt: new Date(next.expiresAtMs) }, 'a new certificate is used');
      for (const listener of this.ofAuthorities) listener({ caCertificate: next.authorities });
      for (const listener of this.ofIdentity) listener(next);
    } catch (error) {
      const { message } = error as Error;
      if (this.unreadable !== message) this.logger.error({ err: error }, 'the new certificate cannot be used');
      this.unreadable = message;
    }
  }

  addCaCertificateListener(listener: experimental.CaCertificateUpdateListener): void {
    this.ofAuthorities.add(listener);
    // grpc-js adds its own listeners behind this one before it can take anything.
    process.nextTick(() => listener({ caCertificate: this.material.authorities }));
  }

  removeCaCertificateListener(listener: experimental.CaCertificateUpdateListener): void {
    this.ofAuthorities.delete(listener);
  }

  addIdentityCertificateListener(listener: experimental.IdentityCertificateUpdateListener): void {
    this.ofIdentity.add(listener);
    process.nextTick(() => listener(this.material));
  }

  removeIdentityCertificateListener(listener: experimental.IdentityCertificateUpdateListener): void {
    this.ofIdentity.delete(listener);
  }
}

/** While a mounted secret is exchanged the files may be of two generations: then they do not fit together. */
async function read(folder: string): Promise<Material> {
  try {
    const [certificate, privateKey, authorities] = await Promise.all(FILES.map((name) => readFile(join(folder, name))));
    if (!certificate || !privateKey || !authorities) throw new Error('a file is empty');
    const own = new X509Certificate(certificate);
    new X509Certificate(authorities);
    if (!own.checkPrivateKey(createPrivateKey(privateKey))) throw new Error('tls.crt is not for the key in tls.key');
    return { certificate, privateKey, authorities, expiresAtMs: Date.parse(own.validTo) };
  } catch (cause) {
    const message = `The folder ${folder} (MARGAY_TLS_DIR) must hold tls.crt, tls.key and ca.crt that belong together: ${(cause as Error).message}.`;
    throw new FailedPreconditionError('tls_unreadable', message, { cause });
  }
}

function isSame(a: Material, b: Material): boolean {
  return (
    a.certificate.equals(b.certificate) && a.privateKey.equals(b.privateKey) && a.authorities.equals(b.authorities)
  );
}
