import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import os, { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ensureKekFile, openServers, TEST_SOURCES, type OpenServers } from '@margay/launcher';
import { createLogger, generateKeys } from '@margay/platform';
import { FakeS3 } from '@margay/testing';
import { MongoClient } from 'mongodb';
import { bootstrap } from '../bootstrap/command';
import { DoctorConfig } from '../config';
import { checkCertificate } from './check-certificate';
import { checkStore } from './check-store';
import { doctor, examine } from './doctor';
import type { Finding } from './finding';

jest.setTimeout(120_000);

let directory: string;
let servers: OpenServers;
let client: MongoClient;
let environment: NodeJS.ProcessEnv;
const database = 'doctored_g0';

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'margay-doctor-'));
  servers = await openServers({ directory: join(directory, 'servers'), allow: TEST_SOURCES });
  client = await new MongoClient(servers.store.url, { runtimeAdapters: { os } }).connect();
  const keys = join(directory, 'keys');
  await generateKeys(keys, ['session', 'gateway']);
  await ensureKekFile(join(directory, 'kek.json'));
  const tls = { prefix: 'tls', peers: new Map([['session', ['session']]]) };
  await bootstrap({ target: { folder: directory }, secrets: new Map(), tls }, createLogger({ level: 'off' }));
  environment = {
    MARGAY_MONGODB_URL: servers.store.url,
    MARGAY_MONGODB_DATABASE: database,
    MARGAY_NATS_URL: servers.nats.url,
    MARGAY_KEYS_DIR: keys,
    MARGAY_HOME: directory,
    MARGAY_KEK_FILE: join(directory, 'kek.json'),
    MARGAY_TLS_DIR: join(directory, 'tls-session'),
  };
}, 300_000);
afterAll(async () => {
  for (const name of [database, 'doctored_g1']) await client.db(name).dropDatabase();
  await client.close();
  await servers.stop();
  await rm(directory, { recursive: true, force: true });
});

async function look(overrides: NodeJS.ProcessEnv = {}): Promise<Finding[]> {
  const config = DoctorConfig.parse({ ...environment, ...overrides });
  return examine({ config, write: () => undefined, progress: () => undefined }, { isQuick: true, isCluster: false });
}

const wrongOf = async (overrides: NodeJS.ProcessEnv) =>
  (await look(overrides)).filter(({ status, check }) => status !== 'ok' && check !== 'machine.disk');

describe('the doctor', () => {
  it('finds nothing wrong with servers and keys that are in order', async () => {
    const findings = (await look()).filter(({ check }) => check !== 'machine.disk');
    expect(findings.filter(({ status }) => status !== 'ok')).toEqual([]);
    const looked = ['machine.node', 'keys.trust', 'tls.certificate', 'nats.reached', 'nats.permissions', 'store.reached', 'store.clock', 'store.generation', 'store.backup', 'keys.secrets']; // prettier-ignore
    expect(findings.map(({ check }) => check)).toEqual(looked);
  });

  describe('of a bucket', () => {
    const fake = new FakeS3();
    beforeEach(() => fake.start());
    afterEach(() => fake.stop());
    const bucket = (more: NodeJS.ProcessEnv = {}): NodeJS.ProcessEnv => ({
      MARGAY_BLOB_DRIVER: 's3',
      MARGAY_S3_ENDPOINT: fake.url,
      MARGAY_S3_BUCKET: fake.bucket,
      MARGAY_S3_ACCESS_KEY_ID: fake.accessKeyId,
      MARGAY_S3_SECRET_ACCESS_KEY: 'spec-secret',
      ...more,
    });
    const ofBucket = async (more?: NodeJS.ProcessEnv) =>
      (await look(bucket(more))).filter(({ check }) => check.startsWith('blobs.'));

    it('writes, reads and removes an object, and looks for a rule about unfinished uploads', async () => {
      expect(await ofBucket()).toEqual([
        { check: 'blobs.bucket', status: 'ok', detail: expect.stringContaining(fake.url) as string },
        expect.objectContaining({ check: 'blobs.unfinished', status: 'warning' }),
      ]);
      expect(fake.objects.size).toBe(0);
      const rule =
        '<Rule><Status>Enabled</Status><AbortIncompleteMultipartUpload><DaysAfterInitiation>2</DaysAfterInitiation>';
      fake.lifecycle = `<LifecycleConfiguration>${rule}</AbortIncompleteMultipartUpload></Rule></LifecycleConfiguration>`;
      expect((await ofBucket()).map(({ status }) => status)).toEqual(['ok', 'ok']);
    });

    it.each([
      ['a bucket that is missing', { MARGAY_S3_BUCKET: 'lost' }, 'MARGAY_S3_BUCKET'],
      ['a key that is refused', { MARGAY_S3_ACCESS_KEY_ID: 'foreign' }, 'MARGAY_S3_ACCESS_KEY_ID'],
      ['a server that is away', { MARGAY_S3_ENDPOINT: 'http://127.0.0.1:1' }, 'MARGAY_S3_ENDPOINT'],
      ['no key', { MARGAY_S3_SECRET_ACCESS_KEY: undefined }, 'MARGAY_S3_SECRET_ACCESS_KEY_FILE'],
    ])('finds %s', async (_, more, name) => {
      const found = { check: 'blobs.bucket', status: 'fault', detail: expect.stringContaining(name) as string };
      expect(await ofBucket(more)).toEqual([expect.objectContaining(found)]);
    });
  });

  it('asks the store for what the protocol promises, in a database that is gone afterwards', async () => {
    const lines: string[] = [];
    const options = { url: servers.store.url, database, withContract: true, longRange: 1_000 };
    const findings = await checkStore({ ...options, progress: (line) => lines.push(line) });
    const found = findings.find(({ check }) => check === 'store.contract');
    expect(found).toMatchObject({ status: 'ok', detail: expect.stringContaining(`${lines.length} promises`) });
    expect(lines.length).toBeGreaterThan(20);
    const { databases } = await client.db('admin').admin().listDatabases({ nameOnly: true });
    expect(databases.filter(({ name }) => name.startsWith('margay_doctor_'))).toEqual([]);
  });

  it.each([
    ['a store that is away', { MARGAY_MONGODB_URL: 'mongodb://127.0.0.1:1/?directConnection=true' }, 'store.reached'],
    ['no store', { MARGAY_MONGODB_URL: undefined }, 'store.reached'],
    ['a broker that is away', { MARGAY_NATS_URL: 'nats://127.0.0.1:1' }, 'nats.reached'],
    ['keys that are missing', { MARGAY_KEYS_DIR: '/nowhere/keys' }, 'keys.trust'],
    ['a certificate that is missing', { MARGAY_TLS_DIR: '/nowhere/tls' }, 'tls.certificate'],
    ['a key of secrets that is missing', { MARGAY_KEK_FILE: '/nowhere/kek.json' }, 'keys.secrets'],
  ])('names %s, with what to do', async (_, overrides, check) => {
    expect(await wrongOf(overrides)).toEqual([
      { check, status: 'fault', detail: expect.any(String), fix: expect.any(String) },
    ]);
  });

  it('tells when the certificate is due, and when it is over', async () => {
    const after = async (days: number) => {
      const [finding] = await checkCertificate(environment.MARGAY_TLS_DIR, Date.now() + days * 86_400_000);
      return finding?.status;
    };
    expect([await after(340), await after(350), await after(370)]).toEqual(['ok', 'warning', 'fault']);
  });

  it('tells of data keys that the file of key-encryption keys can not open', async () => {
    const tenants = client.db(database).collection<{ _id: string; deks: object[] }>('tenants');
    const dek = { id: 'a', kid: 'k0', wrapped: '', createdAt: new Date(), retiredAt: null, uses: 1 };
    await tenants.insertOne({ _id: 'acme', deks: [dek] });
    const [finding] = await wrongOf({});
    await tenants.deleteOne({ _id: 'acme' });
    expect(finding).toMatchObject({ check: 'keys.secrets', status: 'fault', detail: expect.stringContaining('k0') });
  });

  it('never shows a password', async () => {
    const url = 'mongodb://root:hunter2@127.0.0.1:1/?directConnection=true';
    const found = await look({ MARGAY_MONGODB_URL: url, MARGAY_NATS_URL: 'nats://root:hunter2@127.0.0.1:1' });
    expect(JSON.stringify(found)).not.toContain('hunter2');
  });

  it('names a key that the others do not trust, and one that anybody may read', async () => {
    const keys = join(directory, 'odd-keys');
    await generateKeys(keys, ['session', 'gateway']);
    await chmod(join(keys, 'gateway.key.pem'), 0o644);
    expect(await wrongOf({ MARGAY_KEYS_DIR: keys })).toMatchObject([{ check: 'keys.mode', status: 'warning' }]);
    await writeFile(join(keys, 'trust.json'), '{}');
    expect(await wrongOf({ MARGAY_KEYS_DIR: keys })).toMatchObject([{ status: 'fault' }, { status: 'fault' }]);
  });

  it('warns of a restored generation that is not in use, and of an old backup', async () => {
    await client.db('doctored_g1').collection('any').insertOne({});
    const backups = client.db(database).collection('backups');
    await backups.insertOne({ finishedAt: new Date(Date.now() - 27 * 3_600_000) });
    expect(await wrongOf({})).toMatchObject([
      { check: 'store.generation', status: 'warning', fix: expect.stringContaining('doctored_g1') },
      { check: 'store.backup', status: 'warning', detail: 'the last backup is 27 h old' },
    ]);
    await client.db('doctored_g1').dropDatabase();
    await backups.deleteMany({});
  });

  it('ends with 2 for faults and prints each with its fix', async () => {
    const lines: string[] = [];
    const config = DoctorConfig.parse({ ...environment, MARGAY_NATS_URL: undefined });
    const context = { config, write: (line: string) => lines.push(line), progress: () => undefined };
    expect(await doctor({ isQuick: true, isCluster: false, asJson: false }, context)).toBe(2);
    expect(lines.join('\n')).toContain(
      'FAULT   nats.reached: no NATS server is named\n        fix: set MARGAY_NATS_URL',
    );
    expect(lines.at(-1)).toBe('something is wrong');
  });
});
