import { X509Certificate } from 'node:crypto';
import { mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { sandboxIdentity } from './identity';

let folder: string;

beforeEach(() => (folder = mkdtempSync(path.join(tmpdir(), 'margay-identity-'))));
afterEach(() => rmSync(folder, { recursive: true }));

describe('the identity of a sandbox', () => {
  it('is a certificate for its name that its own key has signed', async () => {
    const { certificatePem } = await sandboxIdentity(folder);
    const certificate = new X509Certificate(certificatePem);
    expect(certificate.verify(certificate.publicKey)).toBe(true);
    expect(certificate.checkHost('margay-sandbox')).toBe('margay-sandbox');
    expect(statSync(path.join(folder, 'tls.json')).mode & 0o777).toBe(0o600);
  });

  it('stays the same when the container starts again, and is another in another sandbox', async () => {
    const first = await sandboxIdentity(folder);
    expect(await sandboxIdentity(folder)).toEqual(first);
    rmSync(path.join(folder, 'tls.json'));
    expect((await sandboxIdentity(folder)).certificatePem).not.toBe(first.certificatePem);
  });

  it('is made anew where a command has damaged it', async () => {
    const first = await sandboxIdentity(folder);
    writeFileSync(path.join(folder, 'tls.json'), JSON.stringify({ ...first, keyPem: 'x' }));
    expect((await sandboxIdentity(folder)).certificatePem).not.toBe(first.certificatePem);
  });
});
