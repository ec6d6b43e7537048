import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { idePb, type Principal } from '@margay/contracts';
import {
  createLogger,
  generateKeys,
  grpcClient,
  KeyRing,
  ManagementServer,
  type RunningService,
} from '@margay/platform';
import { startIdeManager } from './start-ide-manager';

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
  return grpcClient(idePb.IdesDefinition, `unix:${join(directory, 'grpc.sock')}`, { keys });
}

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'margay-ide-'));
  await generateKeys(directory, ['gateway', 'ide-manager']);
  const logger = createLogger({ level: 'off' });
  management = new ManagementServer({ listen: '127.0.0.1:0', logger });
  const environment = { MARGAY_IDE_MANAGER_LISTEN: `unix:${join(directory, 'grpc.sock')}`, MARGAY_KEYS_DIR: directory };
  service = await startIdeManager(environment, { logger, management });
  client = connect(await KeyRing.load(directory, 'gateway'));
});
afterAll(async () => {
  client.close();
  await service.close();
  await management.close();
  await rm(directory, { recursive: true });
});

describe('Ides.GetIde', () => {
  it('says in words that the session has no IDE', async () => {
    const { state, reason } = await client.getIde({ sessionId: 's1' }, { principal });
    expect(state).toBe('absent');
    expect(reason).toBe('Session s1 has no IDE: this installation cannot start any yet.');
  });

  it('refuses a request that names no session', async () => {
    const attempt = client.getIde({ sessionId: '' }, { principal });
    await expect(attempt).rejects.toMatchObject({ code: 'INVALID_ARGUMENT', reason: 'session_id_missing' });
  });

  it('refuses a caller without credentials', async () => {
    await expect(client.getIde({ sessionId: 's1' })).rejects.toMatchObject({ reason: 'credentials_missing' });
  });
});

describe('startIdeManager', () => {
  it('names what its environment lacks', async () => {
    const shared = { logger: createLogger({ level: 'off' }), management };
    await expect(startIdeManager({}, shared)).rejects.toThrow(/MARGAY_IDE_MANAGER_LISTEN .*MARGAY_KEYS_DIR/);
  });
});
