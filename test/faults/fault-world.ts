import { join } from 'node:path';
import { PlatformHarness } from '../e2e/harness';
import { OwnServers } from './own-servers';
import { RUNNERS, SESSIONS, type Peer } from './plan';
import { TcpProxy } from './tcp-proxy';

/** Clients are sent to connect anew this often, all the time. */
const CONNECTION_AGE_SECONDS = '10';
const READY_TIMEOUT_MS = 60_000;

/**
 * A whole platform to be struck: two gateways, two sessions, two runners, servers of its own, and a proxy on each way that
 * a fault can lie on. Close it whatever happens.
 */
export class FaultWorld {
  readonly margay: PlatformHarness;
  servers!: OwnServers;
  private readonly proxies: TcpProxy[] = [];
  /** By session process: its way to the store. */
  private readonly storeWays = new Map<string, TcpProxy>();
  /** By runner: its ways to each peer. */
  private readonly peerWays = new Map<string, Record<Peer, TcpProxy[]>>();

  constructor({ env = {}, respawn = false }: { env?: NodeJS.ProcessEnv; respawn?: boolean } = {}) {
    this.margay = new PlatformHarness({
      mode: 'split',
      replicas: { gateway: 2, session: 2, 'agent-runner': 2 },
      env: { MARGAY_GRPC_CONNECTION_AGE_SECONDS: CONNECTION_AGE_SECONDS, ...env },
      respawn,
      readyTimeoutMs: READY_TIMEOUT_MS,
      copiesBundles: true,
      servers: async (directory) => (this.servers = await OwnServers.open(directory)),
      adapt: (name, env) => this.adapt(name, env),
    });
  }

  async start(): Promise<void> {
    await this.margay.start();
  }

  async stop(): Promise<void> {
    this.heal();
    await this.margay.stop();
    await Promise.all(this.proxies.map((proxy) => proxy.close()));
  }

  storeWay(session: string): TcpProxy {
    return found(this.storeWays.get(session), session);
  }

  peerWay(runner: string, peer: Peer): TcpProxy[] {
    return found(this.peerWays.get(runner), runner)[peer];
  }

  /** Opens every way again. */
  heal(): void {
    for (const proxy of this.proxies) proxy.open();
    for (const proxy of this.storeWays.values()) proxy.dropAcknowledgements(0);
  }

  logOf(name: string): string {
    return join(this.margay.home, 'logs', `${name}.log`);
  }

  private async adapt(name: string, env: Readonly<NodeJS.ProcessEnv>): Promise<NodeJS.ProcessEnv> {
    if (SESSIONS.includes(name)) {
      const proxy = await this.proxyTo(this.servers.store.port, true);
      this.storeWays.set(name, proxy);
      return { MARGAY_MONGODB_URL: this.servers.store.url.replace(/127\.0\.0\.1:\d+/, proxy.address) };
    }
    if (!RUNNERS.includes(name)) return {};
    const [session, executor] = [
      await this.proxiesTo(env.MARGAY_SESSION_URL ?? ''),
      await this.proxiesTo(env.MARGAY_TOOL_EXECUTOR_URL ?? ''),
    ];
    const model = await this.proxiesTo(this.margay.model.baseUrl);
    this.peerWays.set(name, { session, executor, model });
    return {
      MARGAY_SESSION_URL: addressesOf(session),
      MARGAY_TOOL_EXECUTOR_URL: addressesOf(executor),
      OPENAI_BASE_URL: `http://${model[0]?.address}/v1`,
    };
  }

  /** A proxy to each address that a target names. */
  private proxiesTo(target: string): Promise<TcpProxy[]> {
    const ports = [...target.matchAll(/127\.0\.0\.1:(\d+)/g)].map(([, port]) => Number(port));
    return Promise.all(ports.map((port) => this.proxyTo(port, false)));
  }

  private async proxyTo(port: number, isStore: boolean): Promise<TcpProxy> {
    const proxy = await TcpProxy.to(port, { isStore });
    this.proxies.push(proxy);
    return proxy;
  }
}

function addressesOf(proxies: readonly TcpProxy[]): string {
  const addresses = proxies.map(({ address }) => address);
  return addresses.length === 1 ? (addresses[0] as string) : `ipv4:${addresses.join(',')}`;
}

function found<T>(value: T | undefined, name: string): T {
  if (value === undefined) throw new Error(`there is no way to strike at ${name}`);
  return value;
}
