import { mkdtempSync, rmSync } from 'node:fs';
import { connect, createServer, type AddressInfo, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import { openProxyDoor, proxyEnvironment } from './proxy-door';

let folder: string;
let proxy: Server;
let door: Server;

beforeEach(async () => {
  folder = mkdtempSync(path.join(tmpdir(), 'margay-door-'));
  proxy = createServer({ allowHalfOpen: true }, (socket) => {
    void text(socket).then((all) => socket.end(`heard ${all}`));
  });
  await new Promise<void>((resolve) => proxy.listen(path.join(folder, 'p'), resolve));
  door = await openProxyDoor(path.join(folder, 'p'), 0);
});
afterEach(async () => {
  for (const server of [door, proxy]) if (server.listening) await new Promise((resolve) => server.close(resolve));
  rmSync(folder, { recursive: true });
});

const dial = () => connect({ host: '127.0.0.1', port: (door.address() as AddressInfo).port, allowHalfOpen: true });

describe('the door to the proxy', () => {
  it('passes on both ways, also after one side has said all', async () => {
    const client = dial();
    client.end('hello');
    expect(await text(client)).toBe('heard hello');
  });

  it('closes to whoever comes while the proxy is away, and opens again with it', async () => {
    await new Promise((resolve) => proxy.close(resolve));
    const client = dial();
    client.end('hello');
    // Reset or closed, as it happens to come about.
    await text(client).then(
      (all) => expect(all).toBe(''),
      (error: unknown) => expect(error).toMatchObject({ code: 'ECONNRESET' }),
    );
    await new Promise<void>((resolve) => proxy.listen(path.join(folder, 'p'), resolve));
    const again = dial();
    again.end('hello');
    expect(await text(again)).toBe('heard hello');
  });
});

describe('the environment of programs', () => {
  it('names the proxy only where there is one', () => {
    expect(proxyEnvironment({ MARGAY_SANDBOX_PROXY_SOCKET: undefined, MARGAY_SANDBOX_PROXY_URL: undefined })).toEqual(
      {},
    );
    const own = proxyEnvironment({
      MARGAY_SANDBOX_PROXY_SOCKET: '/margay/egress/p',
      MARGAY_SANDBOX_PROXY_URL: undefined,
    });
    expect(own).toMatchObject({ HTTPS_PROXY: 'http://127.0.0.1:3128', https_proxy: 'http://127.0.0.1:3128' });
    const url = 'http://b1:token@egress.example:3128';
    expect(proxyEnvironment({ MARGAY_SANDBOX_PROXY_SOCKET: undefined, MARGAY_SANDBOX_PROXY_URL: url })).toMatchObject({
      HTTP_PROXY: url,
      NO_PROXY: 'localhost,127.0.0.1,::1',
    });
  });
});
