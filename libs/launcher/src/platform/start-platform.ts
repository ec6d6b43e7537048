import { mkdir } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { NotFoundError } from '@margay/errors';
import type { PidLedger } from '../processes/pid-ledger';
import type { ProcessExit } from '../processes/supervised-process';
import type { Progress } from '../progress';
import {
  allocateAddresses,
  processEnvironment,
  targetOf,
  type PlatformAddresses,
  type PlatformFacts,
} from './environment';
import { ensureBootstrapKey, ensureKekFile, ensureServiceKeys } from './keys';
import { PlatformProcess, type Life } from './platform-process';
import { planProcesses, type PlannedProcess, type PlatformMode, type Replicas } from './services';

export interface StartPlatformOptions {
  /** Default combined. */
  mode?: PlatformMode;
  /** Keys, logs and workspaces; kept by a later start. */
  home: string;
  /** Replicas of the agent-runner; default 1. */
  runners?: number;
  /** Several processes of one service in split mode, named `session`, `session-2`, …; `runners` says the same for one. */
  replicas?: Replicas;
  nats: { url: string };
  store: { url: string };
  /** `MARGAY_MONGODB_DATABASE`; default: the services' own. One per test file keeps suites apart on one server. */
  database?: string;
  /** The margay bundle; runs with `--services a,b,c`. */
  entry: string;
  /** The sandboxd bundle. */
  sandboxdEntry?: string;
  /** Who may reach what outside, see docs/egress.md; without it sandboxes reach nothing. */
  egressPolicyFile?: string;
  /** Added to the environment of every process. */
  env?: Readonly<NodeJS.ProcessEnv>;
  /** Told the environment of each process before its first start; what it answers is added: e.g. another address to dial. */
  adapt?: (name: string, env: Readonly<NodeJS.ProcessEnv>) => Promise<NodeJS.ProcessEnv>;
  /** Default: any free port. */
  gatewayPort?: number;
  /** Start crashed processes again; default false. */
  respawn?: boolean;
  readyTimeoutMs?: number;
  progress?: Progress;
  onExit?: (name: string, exit: ProcessExit) => void;
  ledger?: PidLedger;
  /** Gives up a start that is not ready yet. */
  signal?: AbortSignal;
}

export interface Platform {
  /** Of the first gateway. */
  gatewayUrl: string;
  /** Of all gateways, in the order of their names. */
  gatewayUrls: readonly string[];
  apiKey: string;
  apiKeyFile: string;
  processes: readonly PlatformProcess[];
  /** The process of that name: `control`, `agent-runner`, `agent-runner-2`, or a service in split mode. */
  get(name: string): PlatformProcess;
  /** What a gRPC client of a service dials: `host:port`, or `ipv4:a,b` with several replicas. */
  serviceAddress(service: keyof PlatformAddresses['grpc']): string;
  /** Management base URL of a process, e.g. for `/metrics`. */
  managementUrl(name: string): string;
  /** Stops (if it runs) and starts one process at its old addresses; resolves when it is ready. */
  restart(name: string, life?: Life): Promise<void>;
  /** Runners first, then the rest: SIGTERM, and SIGKILL after the grace (default 10 s). Idempotent. */
  stop(graceMs?: number): Promise<void>;
}

/** Brings the Margay processes up on this machine and waits until each is ready; a failed start leaves nothing running. */
export async function startPlatform(options: StartPlatformOptions): Promise<Platform> {
  const { mode = 'combined', runners = 1, replicas, gatewayPort } = options;
  const facts = await prepareHome(options);
  const apiKey = await ensureBootstrapKey(facts.bootstrapKeyFile);
  const plan = planProcesses(mode, { 'agent-runner': runners, ...replicas }, facts.egressPolicyFile !== undefined);
  const addresses = await allocateAddresses(plan, gatewayPort);
  const processes = await Promise.all(plan.map((planned) => platformProcess(planned, options, facts, addresses)));
  const platform = new LocalPlatform(processes, addresses, apiKey, facts.bootstrapKeyFile);
  const giveUp = () => void platform.stop();
  options.signal?.addEventListener('abort', giveUp, { once: true });
  try {
    await Promise.all(processes.map((process) => process.start()));
    return platform;
  } catch (error) {
    await platform.stop();
    throw error;
  } finally {
    options.signal?.removeEventListener('abort', giveUp);
  }
}

async function prepareHome(options: StartPlatformOptions): Promise<PlatformFacts> {
  const { home, nats, store, database, sandboxdEntry, egressPolicyFile } = options;
  const keysDirectory = join(home, 'keys');
  // Sandboxes run under other user ids and must get through to their workspaces; what is secret has modes of its own.
  await mkdir(home, { recursive: true, mode: 0o711 });
  const kekFile = join(keysDirectory, 'kek.json');
  await ensureServiceKeys(keysDirectory);
  await ensureKekFile(kekFile);
  return {
    home,
    keysDirectory,
    bootstrapKeyFile: join(home, 'bootstrap.key'),
    kekFile,
    natsUrl: nats.url,
    mongodbUrl: store.url,
    ...(database !== undefined && { database }),
    ...(sandboxdEntry !== undefined && { sandboxdEntry }),
    ...(egressPolicyFile !== undefined && { egressPolicyFile: resolve(egressPolicyFile) }),
  };
}

async function platformProcess(
  planned: PlannedProcess,
  options: StartPlatformOptions,
  facts: PlatformFacts,
  addresses: PlatformAddresses,
): Promise<PlatformProcess> {
  const env = { ...processEnvironment(planned, facts, addresses), ...options.env };
  const adapted = await options.adapt?.(planned.name, env);
  const { entry, home, ledger, onExit, progress, readyTimeoutMs, respawn = false } = options;
  return new PlatformProcess({
    services: planned.services,
    respawn,
    ...(progress && { progress }),
    ...(onExit && { onExit }),
    start: {
      name: planned.name,
      entry,
      args: ['--services', planned.services.join(',')],
      env: { ...env, ...adapted },
      readyUrl: `http://${addresses.management[planned.name]}/readyz`,
      logFile: join(home, 'logs', `${planned.name}.log`),
      ...(readyTimeoutMs !== undefined && { readyTimeoutMs }),
      ...(ledger && { ledger }),
    },
  });
}

class LocalPlatform implements Platform {
  readonly gatewayUrls: readonly string[];

  constructor(
    readonly processes: readonly PlatformProcess[],
    private readonly addresses: PlatformAddresses,
    readonly apiKey: string,
    readonly apiKeyFile: string,
  ) {
    this.gatewayUrls = Object.values(addresses.gateway).map((address) => `http://${address}`);
  }

  get gatewayUrl(): string {
    return this.gatewayUrls[0] as string;
  }

  get(name: string): PlatformProcess {
    const found = this.processes.find((process) => process.name === name);
    if (found) return found;
    const names = this.processes.map((process) => process.name).join(', ');
    throw new NotFoundError('process_unknown', `there is no process ${name} here; there are ${names}`);
  }

  serviceAddress(service: keyof PlatformAddresses['grpc']): string {
    return targetOf(this.addresses.grpc[service]);
  }

  managementUrl(name: string): string {
    return `http://${this.addresses.management[this.get(name).name]}`;
  }

  async restart(name: string, life?: Life): Promise<void> {
    await this.get(name).stop();
    await this.get(name).start(life);
  }

  async stop(graceMs?: number): Promise<void> {
    const isRunner = (process: PlatformProcess) => process.services.includes('agent-runner');
    await Promise.all(this.processes.filter(isRunner).map((process) => process.stop(graceMs)));
    await Promise.all(this.processes.filter((process) => !isRunner(process)).map((process) => process.stop(graceMs)));
  }
}
