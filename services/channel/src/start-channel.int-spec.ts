import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { channelPb, type Principal } from '@margay/contracts';
import {
  createLogger,
  generateKeys,
  grpcClient,
  KeyRing,
  ManagementServer,
  type RunningService,
} from '@margay/platform';
import { startChannel } from './start-channel';

const principal: Principal = {
  v: 1,
  iss: 'gateway',
  tenantId: 'acme',
  principal: 'user:ada',
  role: 'member',
  scopes: null,
};

let directory: string;
let service: RunningService;
let management: ManagementServer;
let client: ReturnType<typeof connect>;

function connect(keys: KeyRing) {
  return grpcClient(channelPb.ChannelsDefinition, `unix:${join(directory, 'grpc.sock')}`, { keys });
}

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'margay-channel-'));
  await generateKeys(directory, ['gateway', 'channel']);
  const logger = createLogger({ level: 'off' });
  management = new ManagementServer({ listen: '127.0.0.1:0', logger });
  const environment = { MARGAY_CHANNEL_LISTEN: `unix:${join(directory, 'grpc.sock')}`, MARGAY_KEYS_DIR: directory };
  service = await startChannel(environment, { logger, management });
  client = connect(await KeyRing.load(directory, 'gateway'));
});
afterAll(async () => {
  client.close();
  await service.close();
  await management.close();
  await rm(directory, { recursive: true });
});

describe('Channels.ListAccounts', () => {
  it('lists no accounts, since no platform can be connected', async () => {
    expect(await client.listAccounts({}, { principal })).toEqual({ accountsJson: [] });
  });

  it('refuses a caller without credentials', async () => {
    await expect(client.listAccounts({})).rejects.toMatchObject({ reason: 'credentials_missing' });
  });
});

describe('startChannel', () => {
  it('names what its environment lacks', async () => {
    const shared = { logger: createLogger({ level: 'off' }), management };
    await expect(startChannel({}, shared)).rejects.toThrow(/MARGAY_CHANNEL_LISTEN .*MARGAY_KEYS_DIR/);
  });
});
