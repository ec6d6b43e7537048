import { Agent, get } from 'node:http';
import { GatewayHarness } from './spec/gateway-harness';

const margay = new GatewayHarness();
const agent = new Agent({ keepAlive: true, maxSockets: 1 });

beforeEach(() => margay.start({ streams: { drainMs: 10_000 } }));
afterEach(async () => {
  agent.destroy();
  await margay.stop();
});

const ask = () =>
  new Promise<{ status?: number; connection?: string; port?: number }>((resolve, reject) => {
    get(`${margay.url}/healthz`, { agent }, (response) => {
      const { statusCode: status, headers, socket } = response;
      const [connection, port] = [headers.connection, socket.localPort];
      response.resume().on('end', () => resolve({ status, connection, port }));
    }).on('error', reject);
  });

describe('a gateway that leaves', () => {
  it('answers what kept connections still bring, and ends them with it', async () => {
    const before = await ask();
    expect(before).toMatchObject({ status: 200, connection: 'keep-alive' });
    const closed = margay.gateway.close();
    expect(await ask()).toEqual({ status: 200, connection: 'close', port: before.port });
    await closed;
    await expect(ask()).rejects.toThrow('ECONNREFUSED');
  });
});
