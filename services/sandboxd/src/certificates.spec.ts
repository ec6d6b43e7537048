import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { joinAuthority } from './certificates';

const PEM = '-----BEGIN CERTIFICATE-----\nown\n-----END CERTIFICATE-----\n';
let folder: string;

beforeEach(() => (folder = mkdtempSync(path.join(tmpdir(), 'margay-certificates-'))));
afterEach(() => rmSync(folder, { recursive: true }));

describe('the authority of the egress proxy', () => {
  it('joins those of the system, and programs are told where', async () => {
    const environment = await joinAuthority(PEM, folder);
    expect(Object.keys(environment).sort()).toEqual([
      'CURL_CA_BUNDLE',
      'GIT_SSL_CAINFO',
      'NODE_EXTRA_CA_CERTS',
      'REQUESTS_CA_BUNDLE',
      'SSL_CERT_FILE',
    ]);
    const bundle = readFileSync(environment['SSL_CERT_FILE'] ?? '', 'utf8');
    expect(bundle.endsWith(`\n${PEM}`)).toBe(true);
    expect(bundle.match(/BEGIN CERTIFICATE/g)?.length).toBeGreaterThan(20);
    expect(readFileSync(environment['NODE_EXTRA_CA_CERTS'] ?? '', 'utf8')).toBe(PEM);
  });

  it('is written anew at each start, whatever a command has put in its place', async () => {
    await joinAuthority(PEM, folder);
    rmSync(path.join(folder, 'ca.pem'));
    mkdirSync(path.join(folder, 'ca.pem', 'x'), { recursive: true });
    const environment = await joinAuthority(PEM, folder);
    expect(readFileSync(environment['NODE_EXTRA_CA_CERTS'] ?? '', 'utf8')).toBe(PEM);
  });

  it('is nothing where there is none', async () => {
    expect(await joinAuthority(undefined, folder)).toEqual({});
  });
});
