import { connect, createServer, type Server } from 'node:net';
import { pipeline } from 'node:stream';
import type { SandboxdConfig } from './config';

const HOST = '127.0.0.1';
const PORT = 3128;
const MAX_CONNECTIONS = 256;
const LOCAL = 'localhost,127.0.0.1,::1';

/**
 * The sandbox's only way out: a port of its own loopback that leads to the socket of the egress proxy. Programs speak
 * HTTP to proxies, not Unix sockets. Nothing here decides anything: that is done behind the socket.
 */
export async function openProxyDoor(socketFile: string, port = PORT): Promise<Server> {
  const server = createServer({ allowHalfOpen: true }, (client) => {
    const proxy = connect({ path: socketFile, allowHalfOpen: true });
    const done = (error?: Error | null): void => {
      // One side that ended well may still hear the other.
      if (!error) return;
      client.destroy();
      proxy.destroy();
    };
    pipeline(client, proxy, done);
    pipeline(proxy, client, done);
  });
  server.maxConnections = MAX_CONNECTIONS;
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, HOST, resolve);
  });
  return server;
}

/** What programs look at to find the proxy; nothing where there is none. */
export function proxyEnvironment({
  MARGAY_SANDBOX_PROXY_SOCKET: socketFile,
  MARGAY_SANDBOX_PROXY_URL: given,
}: Pick<SandboxdConfig, 'MARGAY_SANDBOX_PROXY_SOCKET' | 'MARGAY_SANDBOX_PROXY_URL'>): Record<string, string> {
  const url = given ?? (socketFile === undefined ? undefined : `http://${HOST}:${PORT}`);
  if (url === undefined) return {};
  return {
    HTTP_PROXY: url,
    HTTPS_PROXY: url,
    http_proxy: url,
    https_proxy: url,
    NO_PROXY: LOCAL,
    no_proxy: LOCAL,
    // Node's own `fetch` heeds the others only then.
    NODE_USE_ENV_PROXY: '1',
  };
}
