import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { openStore, TEST_SOURCES, type OpenStore } from '@margay/launcher';
import { BlobConfig, createLogger, ManagementServer } from '@margay/platform';
import { ServiceStore } from './service-store';

const logger = createLogger({ level: 'off' });
const directory = mkdtempSync(path.join(tmpdir(), 'margay-store-'));
let server: OpenStore;
let management: ManagementServer;
let store: ServiceStore | undefined;

beforeAll(async () => {
  server = await openStore({ directory, allow: TEST_SOURCES });
  management = new ManagementServer({ listen: '127.0.0.1:0', logger });
});

afterEach(async () => {
  await store?.close();
});

afterAll(async () => {
  await management?.close();
  await server?.stop();
  rmSync(directory, { recursive: true, force: true });
});

it('gives everybody the same connection', async () => {
  store = storeAt(server.url);
  const [first, second] = await Promise.all([store.find(), store.find()]);
  expect(first?.databaseName).toBe('spec_service_store');
  expect(second).toBe(first);
  expect(await store.find()).toBe(first);
});

it('has nothing where no store is configured', async () => {
  store = storeAt(undefined);
  expect(await store.find()).toBeUndefined();
});

it('is closed for all of them', async () => {
  store = storeAt(server.url);
  const db = await store.find();
  await store.close();
  await expect(db?.command({ ping: 1 })).rejects.toThrow();
});

function storeAt(url: string | undefined): ServiceStore {
  return new ServiceStore(
    { ...BlobConfig.parse({}), MARGAY_MONGODB_URL: url, MARGAY_MONGODB_DATABASE: 'spec_service_store' },
    { logger, management },
  );
}
