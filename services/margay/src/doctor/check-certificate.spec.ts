import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { certify, newKeyPair } from '@margay/platform/certificates';
import { checkCertificate } from './check-certificate';

const DAY_MS = 86_400_000;
const lifetime = { notBeforeMs: Date.now() - DAY_MS, notAfterMs: Date.now() + 100 * DAY_MS };
const [root, between, leaf, stranger] = [newKeyPair(), newKeyPair(), newKeyPair(), newKeyPair()];
const authority = (subject: string, keys = root, issuer = { subject, keys }) =>
  certify({ subject, publicKey: keys.publicKey, issuer, ...lifetime, use: { kind: 'authority' } });
const rootPem = authority('root');
const betweenPem = authority('between', between, { subject: 'root', keys: root });
const strangerPem = authority('stranger', stranger);
const leafPem = certify({
  subject: 'session',
  publicKey: leaf.publicKey,
  issuer: { subject: 'between', keys: between },
  ...lifetime,
  use: { kind: 'peer', names: ['session'] },
});

let folder: string;

beforeEach(async () => (folder = await mkdtemp(join(tmpdir(), 'margay-certificate-'))));
afterEach(() => rm(folder, { recursive: true }));

async function statusOf(own: string, trusted: string): Promise<string | undefined> {
  await writeFile(join(folder, 'tls.crt'), own);
  await writeFile(join(folder, 'tls.key'), leaf.privateKey.export({ type: 'pkcs8', format: 'pem' }));
  await writeFile(join(folder, 'ca.crt'), trusted);
  return (await checkCertificate(folder))[0]?.status;
}

describe('the certificate of a process', () => {
  it('is good where one of ca.crt has signed it, or the last of its chain', async () => {
    expect(await statusOf(leafPem, betweenPem)).toBe('ok');
    expect(await statusOf(leafPem, `${strangerPem}${betweenPem}`)).toBe('ok');
    expect(await statusOf(`${leafPem}${betweenPem}`, rootPem)).toBe('ok');
  });

  it('is a fault where nothing leads to one of ca.crt, with a chain too', async () => {
    expect(await statusOf(leafPem, rootPem)).toBe('fault');
    expect(await statusOf(`${leafPem}${betweenPem}`, strangerPem)).toBe('fault');
  });
});
