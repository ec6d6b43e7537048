import { join } from 'node:path';
import { freePorts } from '../processes/ports';
import type { PlannedProcess, ServiceName } from './services';

const GRPC_SERVICES = ['session', 'tool-executor', 'mcp-pool', 'ide-manager', 'channel'] as const;
/** Services with collections of their own. */
const STORE_SERVICES: ReadonlySet<ServiceName> = new Set(GRPC_SERVICES);

type GrpcService = (typeof GRPC_SERVICES)[number];

export interface PlatformAddresses {
  /** By process name; in combined mode all services of control have theirs. */
  gateway: Record<string, string>;
  grpc: Record<GrpcService, Record<string, string>>;
  management: Record<string, string>;
}

/** Chooses a loopback address for everything that listens; they stay the same over restarts of single processes. */
export async function allocateAddresses(
  plan: readonly PlannedProcess[],
  gatewayPort?: number,
): Promise<PlatformAddresses> {
  const ports = await freePorts(plan.length + plan.reduce((sum, { services }) => sum + services.length, 0));
  const allocate = (service?: ServiceName) => {
    const hosts = plan.filter(({ services }) => service === undefined || services.includes(service));
    return Object.fromEntries(hosts.map(({ name }) => [name, `127.0.0.1:${ports.shift()}`]));
  };
  const gateway = allocate('gateway');
  const [first] = Object.keys(gateway);
  if (gatewayPort !== undefined && first !== undefined) gateway[first] = `127.0.0.1:${gatewayPort}`;
  const grpc = Object.fromEntries(GRPC_SERVICES.map((service) => [service, allocate(service)]));
  return { gateway, grpc: grpc as PlatformAddresses['grpc'], management: allocate() };
}

/** What clients of a service dial: `host:port`, or all replicas in the form that gRPC spreads calls over. */
export function targetOf(addresses: Record<string, string>): string {
  const all = Object.values(addresses);
  return all.length === 1 ? (all[0] as string) : `ipv4:${all.join(',')}`;
}

export interface PlatformFacts {
  home: string;
  keysDirectory: string;
  bootstrapKeyFile: string;
  kekFile: string;
  natsUrl: string;
  mongodbUrl: string;
  database?: string;
  sandboxdEntry?: string;
  egressPolicyFile?: string;
}

/** The environment of one process. A runner gets neither the store, the first API key, nor the keys of secrets. */
export function processEnvironment(
  planned: PlannedProcess,
  facts: PlatformFacts,
  addresses: PlatformAddresses,
): NodeJS.ProcessEnv {
  const usesStore = planned.services.some((service) => STORE_SERVICES.has(service));
  return {
    MARGAY_HOME: facts.home,
    MARGAY_NATS_URL: facts.natsUrl,
    // Undefined also takes away what this process inherited.
    MARGAY_MONGODB_URL: usesStore ? facts.mongodbUrl : undefined,
    ...(usesStore && facts.database !== undefined && { MARGAY_MONGODB_DATABASE: facts.database }),
    MARGAY_KEYS_DIR: facts.keysDirectory,
    MARGAY_BOOTSTRAP_KEY_FILE: planned.services.includes('session') ? facts.bootstrapKeyFile : undefined,
    MARGAY_BOOTSTRAP_KEY: undefined,
    MARGAY_KEK_FILE: planned.services.includes('session') ? facts.kekFile : undefined,
    // Less than the grace of a stop, so that a process ends by itself.
    MARGAY_SHUTDOWN_LIMIT_SECONDS: '8',
    // Spreading the reconnections of many clients is for clusters.
    MARGAY_STREAM_DRAIN_SECONDS: '0.5',
    MARGAY_SANDBOX_DRIVER: 'process',
    MARGAY_SANDBOXD_ENTRY: facts.sandboxdEntry,
    ...egressEnvironment(planned, facts),
    MARGAY_GATEWAY_LISTEN: addresses.gateway[planned.name] ?? Object.values(addresses.gateway)[0],
    MARGAY_MANAGEMENT_LISTEN: addresses.management[planned.name],
    ...grpcEnvironment(planned.name, addresses),
  };
}

/** The proxy and tool-executor meet at a private socket; undefined also takes away what this process inherited. */
function egressEnvironment({ services }: PlannedProcess, { home, egressPolicyFile }: PlatformFacts): NodeJS.ProcessEnv {
  const isEgress = services.includes('egress');
  const isExecutor = services.includes('tool-executor');
  const hasEgress = egressPolicyFile !== undefined;
  const authority = join(home, 'egress', 'ca');
  return {
    MARGAY_EGRESS_POLICY_FILE: isEgress ? egressPolicyFile : undefined,
    // The proxy makes what is missing there; tool-executor reads the certificate whenever a sandbox starts.
    MARGAY_EGRESS_CA_DIR: isEgress ? authority : undefined,
    MARGAY_EGRESS_CA_FILE: isExecutor && hasEgress ? join(authority, 'ca.pem') : undefined,
    MARGAY_EGRESS_LOCAL_SOCKET: (isEgress || isExecutor) && hasEgress ? join(home, 'egress', 'relay.sock') : undefined,
  };
}

function grpcEnvironment(processName: string, { grpc }: PlatformAddresses): NodeJS.ProcessEnv {
  const entries = GRPC_SERVICES.flatMap((service) => {
    const name = `MARGAY_${service.toUpperCase().replaceAll('-', '_')}`;
    return [
      [`${name}_LISTEN`, grpc[service][processName]],
      [`${name}_URL`, targetOf(grpc[service])],
    ];
  });
  return Object.fromEntries(entries);
}
