import { mkdtemp, readdir, readFile, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createLogger, KeyRing, TlsIdentity } from '@margay/platform';
import { bootstrap, parseBootstrap } from './command';

const logger = createLogger({ service: 'spec', level: 'off' });
let folder: string;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'margay-bootstrap-'));
});
afterEach(() => rm(folder, { recursive: true, force: true }));

const run = (...argv: string[]) => bootstrap(parseBootstrap(argv, 'local'), logger);

describe('the command bootstrap', () => {
  it('makes keys into a folder that services start with, and changes none of them', async () => {
    const argv = ['--out', folder, '--keys', 'margay-keys', '--first-key', 'margay-first-key'];
    await run(...argv);
    const file = join(folder, 'margay-keys/session.key.pem');
    const made = await readFile(file, 'utf8');
    await run(...argv);
    expect(await readFile(file, 'utf8')).toBe(made);
    expect((await stat(file)).mode & 0o777).toBe(0o600);
    expect((await readdir(folder)).sort()).toEqual(['margay-first-key', 'margay-keys']);
    expect(await readFile(join(folder, 'margay-first-key/key'), 'utf8')).toMatch(/^mk_local_/);
    await expect(KeyRing.load(join(folder, 'margay-keys'), 'session')).resolves.toBeInstanceOf(KeyRing);
  });

  it('makes certificates that services accept each other by, and renews them in time', async () => {
    const argv = [
      '--out',
      folder,
      '--tls',
      'margay-tls',
      '--peer',
      'session=session',
      '--peer',
      'control=gateway,channel',
    ];
    await run(...argv);
    expect((await readdir(folder)).sort()).toEqual(['margay-tls-ca', 'margay-tls-control', 'margay-tls-session']);
    const file = join(folder, 'margay-tls-session/tls.crt');
    const made = await readFile(file, 'utf8');
    await expect(TlsIdentity.open(join(folder, 'margay-tls-control'), logger)).resolves.toBeInstanceOf(TlsIdentity);
    await run(...argv);
    expect(await readFile(file, 'utf8')).toBe(made);
    await bootstrap(parseBootstrap(argv, 'local'), logger, Date.now() + 310 * 86_400_000);
    expect(await readFile(file, 'utf8')).not.toBe(made);
    await expect(TlsIdentity.open(join(folder, 'margay-tls-session'), logger)).resolves.toBeInstanceOf(TlsIdentity);
  });

  it.each([
    [['--namespace', 'n', '--tls', 't'], /go together/],
    [['--namespace', 'n', '--keys', 'k', '--peer', 'a=b'], /go together/],
    [['--namespace', 'n', '--tls', 't', '--peer', 'a'], /'a' is not of the form/],
    [[], /either a namespace or a folder/],
    [['--keys', 'k'], /either a namespace or a folder/],
    [['--namespace', 'n', '--out', 'o', '--keys', 'k'], /either a namespace or a folder/],
    [['--namespace', 'n'], /at least one secret/],
    [['--namespace', 'n', '--key', 'k'], /--key/],
  ])('refuses %j and says how it is called', (argv, words) => {
    expect(() => parseBootstrap(argv, 'local')).toThrow(words);
    expect(() => parseBootstrap(argv, 'local')).toThrow(/Usage: margay.cjs bootstrap/);
  });
});
