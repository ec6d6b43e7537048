import { X509Certificate } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Authority, CA_CERTIFICATE, CA_KEY, newAuthority } from './authority';

let folder: string;
let nowMs: number;
const now = () => nowMs;

beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'margay-authority-'));
  nowMs = Date.now();
});
afterEach(() => rmSync(folder, { recursive: true }));

const file = (name: string) => path.join(folder, name);
const open = () => Authority.open(folder, now);

describe('the authority', () => {
  it('is made where there is none, and kept', async () => {
    await open();
    const made = readFileSync(file(CA_CERTIFICATE), 'utf8');
    expect(new X509Certificate(made).ca).toBe(true);
    expect(statSync(file(CA_KEY)).mode & 0o777).toBe(0o600);
    await open();
    expect(readFileSync(file(CA_CERTIFICATE), 'utf8')).toBe(made);
  });

  it('makes a certificate for a host once a day', async () => {
    const authority = await open();
    const first = authority.contextFor('git.example');
    expect(authority.contextFor('git.example')).toBe(first);
    expect(authority.contextFor('other.example')).not.toBe(first);
    nowMs += 86_400_001;
    expect(authority.contextFor('git.example')).not.toBe(first);
  });

  it.each<[string, () => void]>([
    ['a foreign key', () => writeFileSync(file(CA_KEY), newAuthority(nowMs).keyPem)],
    ['no key', () => writeFileSync(file(CA_KEY), 'x')],
    ['no certificate', () => writeFileSync(file(CA_CERTIFICATE), 'x')],
    ['one that has ended', () => (nowMs += 4_000 * 86_400_000)],
  ])('is refused with %s', async (_, damage) => {
    await open();
    damage();
    await expect(open()).rejects.toMatchObject({ reason: 'egress_authority' });
  });
});
