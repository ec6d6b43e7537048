import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openStore, type OpenStore } from '@margay/launcher';
import { createLogger } from '@margay/platform';
import { parsePrepareStore, prepareStore } from './prepare-store';

const logger = createLogger({ service: 'spec', level: 'off' });
let directory: string;
let store: OpenStore;

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'margay-prepare-'));
  store = await openStore({ directory });
}, 300_000);
afterAll(async () => {
  await store.stop();
  await rm(directory, { recursive: true });
});

describe('the command prepare-store', () => {
  it('is content with a store that takes writes, and initiates nothing there', async () => {
    await prepareStore({ url: store.url, replicaSet: 'margay', logger });
    await prepareStore({ url: store.url, logger });
  });

  it('gives up with words when the store does not come', async () => {
    const url = 'mongodb://127.0.0.1:1/?directConnection=true&serverSelectionTimeoutMS=100';
    await expect(prepareStore({ url, logger, limitMs: 0 })).rejects.toMatchObject({ reason: 'store_unavailable' });
  });

  it('takes the name of the replica set, and nothing it does not know', () => {
    expect(parsePrepareStore(['--initiate', 'margay'])).toBe('margay');
    expect(parsePrepareStore([])).toBeUndefined();
    expect(() => parsePrepareStore(['--now'])).toThrow(/Usage: margay.cjs prepare-store/);
  });
});
