import type { Socket } from 'node:net';
import { subjects } from '@margay/contracts';
import { InvalidArgumentError, UnauthenticatedError, UnavailableError } from '@margay/errors';
import { KeyRing, type Logger, type NatsBus, type ServiceShared } from '@margay/platform';
import type { EgressConfig } from '../config';
import { identityCounter } from '../metrics';
import type { EgressProxy } from '../proxy/egress-proxy';
import type { Identify } from '../proxy/gate';
import { executorCallers } from './executor-callers';
import { RelayServer } from './relay-server';
import { TokenIdentity } from './token-identity';

/** How the proxy is reached and how it knows who asks. */
export interface Doors {
  identify: Identify;
  open(proxy: EgressProxy): Promise<void>;
  close(): Promise<void>;
}

type DoorsShared = Pick<ServiceShared, 'tls' | 'management'> & {
  /** Where ends of sandboxes are announced; absent: what is known of them is forgotten within a minute. */
  bus: NatsBus | undefined;
};

const MAX_CONNECTIONS = 10_000;
/** One sandbox must not take all of them before anybody knows who it is. */
const MOST_PER_ADDRESS = 500;

/** @throws InvalidArgumentError `bad_environment` */
export async function doorsOf(config: EgressConfig, logger: Logger, shared: DoorsShared): Promise<Doors> {
  const { MARGAY_EGRESS_LOCAL_SOCKET: socketFile, MARGAY_EGRESS_LISTEN: listen } = config;
  if (socketFile === undefined && listen === undefined)
    throw incomplete('set MARGAY_EGRESS_LOCAL_SOCKET, MARGAY_EGRESS_LISTEN or both');
  let proxy: EgressProxy | undefined;
  const relay = new RelayServer((socket) => proxy?.server.emit('connection', socket));
  const network = listen === undefined ? undefined : await networkOf(config, logger, shared);
  return {
    identify: async (request) => {
      const caller = relay.callerOf(request.socket);
      if (caller) return caller;
      if (network) return network.identity.identify(request);
      throw new UnauthenticatedError('egress_identity', 'The proxy does not know who asks.');
    },
    open: async (opened) => {
      proxy = opened;
      if (socketFile !== undefined) await relay.listen(socketFile);
      if (listen !== undefined) await listenOn(opened, listen);
    },
    close: async () => {
      await relay.close();
      if (proxy?.server.listening) proxy.server.close();
      network?.close();
    },
  };
}

async function networkOf(config: EgressConfig, logger: Logger, shared: DoorsShared) {
  const { MARGAY_TOOL_EXECUTOR_URL: address, MARGAY_KEYS_DIR: folder } = config;
  if (address === undefined || folder === undefined)
    throw incomplete('with MARGAY_EGRESS_LISTEN, set MARGAY_TOOL_EXECUTOR_URL and MARGAY_KEYS_DIR');
  const callers = executorCallers(address, await KeyRing.load(folder, 'egress', shared), logger);
  const identity = new TokenIdentity(callers.resolve, identityCounter(shared.management.registry));
  const { bus } = shared;
  bus?.subscribe(subjects.config('sandbox'), (sandboxId) => identity.forget(Buffer.from(sandboxId).toString()));
  bus?.onReconnect(() => identity.forgetAll());
  return { identity, close: () => callers.close() };
}

async function listenOn({ server }: EgressProxy, listen: string): Promise<void> {
  const separator = listen.lastIndexOf(':');
  const host = listen.slice(0, separator).replace(/^\[|\]$/g, '');
  server.maxConnections = MAX_CONNECTIONS;
  server.prependListener('connection', boundByAddress());
  await new Promise<void>((resolve, reject) => {
    server.once('error', (cause) =>
      reject(new UnavailableError('listen_failed', `Cannot listen on ${listen}; is the port taken?`, { cause })),
    );
    server.listen(Number(listen.slice(separator + 1)), host, resolve);
  });
}

function boundByAddress(): (socket: Socket) => void {
  const open = new Map<string, number>();
  return (socket) => {
    const { remoteAddress: address } = socket;
    if (address === undefined) return; // by the private socket
    const count = (open.get(address) ?? 0) + 1;
    open.set(address, count);
    socket.once('close', () => {
      const left = (open.get(address) ?? 1) - 1;
      if (left > 0) open.set(address, left);
      else open.delete(address);
    });
    if (count > MOST_PER_ADDRESS) socket.destroy();
  };
}

const incomplete = (what: string) => new InvalidArgumentError('bad_environment', `Cannot start: ${what}.`);
