import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { mcpPb, type Principal } from '@margay/contracts';
import {
  createLogger,
  generateKeys,
  grpcClient,
  KeyRing,
  ManagementServer,
  type RunningService,
} from '@margay/platform';
import { startMcpPool } from './start-mcp-pool';

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
  return grpcClient(mcpPb.McpDefinition, `unix:${join(directory, 'grpc.sock')}`, { keys });
}

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'margay-mcp-'));
  await generateKeys(directory, ['gateway', 'session', 'mcp-pool']);
  const logger = createLogger({ level: 'off' });
  management = new ManagementServer({ listen: '127.0.0.1:0', logger });
  const environment = { MARGAY_MCP_POOL_LISTEN: `unix:${join(directory, 'grpc.sock')}`, MARGAY_KEYS_DIR: directory };
  service = await startMcpPool(environment, { logger, management });
  client = connect(await KeyRing.load(directory, 'gateway'));
});
afterAll(async () => {
  client.close();
  await service.close();
  await management.close();
  await rm(directory, { recursive: true });
});

describe('Mcp.ListTools', () => {
  it('lists no tools, since no server can be configured', async () => {
    expect(await client.listTools({}, { principal })).toEqual({ toolsJson: [] });
  });

  it('answers a run that shows its grant', async () => {
    const session = await KeyRing.load(directory, 'session');
    const grant = await session.signRunGrant({
      v: 1,
      tenantId: 'acme',
      sessionId: 's1',
      runId: 's1:r1',
      epoch: 1,
      storeGeneration: 0,
      principal: 'user:ada',
      workspace: { kind: 'own' },
    });
    expect(await client.listTools({}, { grant })).toEqual({ toolsJson: [] });
  });

  it('refuses a caller without credentials', async () => {
    await expect(client.listTools({})).rejects.toMatchObject({ reason: 'credentials_missing' });
  });
});

describe('startMcpPool', () => {
  it('names what its environment lacks', async () => {
    const shared = { logger: createLogger({ level: 'off' }), management };
    await expect(startMcpPool({}, shared)).rejects.toThrow(/MARGAY_MCP_POOL_LISTEN .*MARGAY_KEYS_DIR/);
  });
});
