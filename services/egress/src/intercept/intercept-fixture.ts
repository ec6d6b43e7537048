import { readFileSync, writeFileSync } from 'node:fs';
import { request as httpRequest, type RequestListener } from 'node:http';
import { createServer } from 'node:https';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import { connect, type TLSSocket } from 'node:tls';
import { certify, newKeyPair } from '@margay/platform/certificates';
import { EgressFixture, type Answer } from '../egress-fixture';
import { CA_CERTIFICATE } from './authority';

const HOST_CA = { subject: 'authority of hosts', keys: newKeyPair() };
const DAY_MS = 86_400_000;
const period = () => ({ notBeforeMs: Date.now() - DAY_MS, notAfterMs: Date.now() + DAY_MS });

export const hostCaPem = certify({
  ...HOST_CA,
  publicKey: HOST_CA.keys.publicKey,
  issuer: HOST_CA,
  ...period(),
  use: { kind: 'authority' },
});

/** A key and a certificate for a host, vouched for by an authority that only the proxy is told to trust. */
export function hostIdentity(...names: string[]): { key: string; cert: string } {
  const { privateKey, publicKey } = newKeyPair();
  const use = { kind: 'server', names } as const;
  const cert = certify({ subject: 'host', publicKey, issuer: HOST_CA, ...period(), use });
  return { key: privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(), cert };
}

/** For specs: the service with an authority, and hosts that speak TLS. */
export class InterceptFixture extends EgressFixture {
  override start(settings: object, more: Record<string, string> = {}): Promise<this> {
    const trustFile = path.join(this.folder, 'hosts.pem');
    writeFileSync(trustFile, hostCaPem);
    return super.start(settings, {
      MARGAY_EGRESS_CA_DIR: path.join(this.folder, 'ca'),
      MARGAY_EGRESS_TRUST_FILE: trustFile,
      ...more,
    });
  }

  /** What a sandbox is given to trust. */
  get caFile(): string {
    return path.join(this.folder, 'ca', CA_CERTIFICATE);
  }

  /** A host on this machine; answers its port. */
  async serveHost(name: string, listener: RequestListener, identity = hostIdentity(name)): Promise<number> {
    this.names.set(name, ['127.0.0.1']);
    return this.serve(createServer(identity, listener));
  }

  /** TLS in a tunnel, as a sandbox speaks it; not yet shaken hands. */
  async speak(authority: string, servername = authority.split(':')[0], alpn = ['http/1.1']): Promise<TLSSocket> {
    const { socket } = await this.tunnel(authority);
    const secure = connect({ socket, servername, ca: readFileSync(this.caFile), ALPNProtocols: alpn });
    secure.on('error', () => undefined);
    return secure;
  }

  /** A request through a tunnel. */
  async ask(
    authority: string,
    resource: string,
    options: { method?: string; headers?: Record<string, string>; body?: string } = {},
  ): Promise<Answer> {
    const socket = await this.speak(authority);
    const { method = 'GET', headers, body } = options;
    return new Promise<Answer>((resolve, reject) => {
      const host = authority.replace(/:443$/, '');
      const outgoing = httpRequest({
        createConnection: () => socket,
        method,
        path: resource,
        headers: { Host: host, ...headers },
      });
      outgoing.once('error', reject).once('response', (response) => {
        text(response).then(
          (all) => resolve({ status: response.statusCode ?? 0, headers: response.headers, body: all }),
          reject,
        );
      });
      outgoing.end(body);
    });
  }
}
