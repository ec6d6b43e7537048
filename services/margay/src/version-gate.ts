import { instancesPb } from '@margay/contracts';
import { isMargayError, UnavailableError } from '@margay/errors';
import {
  compareVersions,
  grpcClient,
  KeyRing,
  parseConfig,
  systemPrincipal,
  type Logger,
  type ManagementServer,
  type TlsIdentity,
} from '@margay/platform';
import { Gauge } from 'prom-client';
import { GateConfig } from './config';
import type { ServiceName } from './service-names';

const BEAT_MS = 5_000;
/** Until session has answered for the first time. */
const FIRST_MS = 500;
const TIMEOUT_MS = 1_500;

/** Who lives, as session tells; each empty where there is none. */
export interface Neighbours {
  /** Lowest version among the session replicas. */
  lowestSessionVersion: string;
  /** A server of this process that is older than it, in words. */
  olderServer: string;
  /** A client of this process that is newer than it, in words. */
  newerClient: string;
}

/** What the gate asks of a session replica. */
export interface InstancesPort {
  beat(leaves: boolean): Promise<Neighbours>;
}

const NOBODY: Neighbours = { lowestSessionVersion: '', olderServer: '', newerClient: '' };

/**
 * Keeps a process out of service whose turn in an upgrade or a roll-back has not come: it may ask an older server for what
 * that one does not know, or be asked by a newer client. Until session has answered once nobody knows; while it does not
 * answer later, what it said last counts.
 */
export class VersionGate {
  private neighbours?: Neighbours;
  /** It has been in service once, and stays so: whoever is to take its place waits by itself until it is gone. */
  private isInService = false;
  private isStopped = false;
  private timer?: NodeJS.Timeout;

  constructor(
    private readonly port: InstancesPort,
    private readonly version: string,
    private readonly logger: Logger,
  ) {}

  get isClosed(): boolean {
    return !this.isInService && (!this.neighbours || this.waitsFor !== '');
  }

  /** @throws UnavailableError `version` */
  check(): void {
    if (this.isInService) return;
    if (!this.neighbours)
      throw new UnavailableError(
        'version',
        `session has not said yet which versions live; ${this.version} waits for it`,
      );
    const { waitsFor } = this;
    if (waitsFor !== '')
      throw new UnavailableError('version', `${waitsFor} still lives; ${this.version} waits until it is replaced`);
    this.isInService = true;
  }

  /** The same as a word: who waits takes no work either. */
  isItsTurn(): boolean {
    if (!this.isClosed) this.check();
    return this.isInService;
  }

  /** Resolves once session has been asked. */
  async start(): Promise<void> {
    await this.ask();
    if (this.isStopped) return;
    this.timer = setTimeout(() => void this.start(), this.neighbours ? BEAT_MS : FIRST_MS);
    this.timer.unref();
  }

  async stop(): Promise<void> {
    this.isStopped = true;
    clearTimeout(this.timer);
    await this.port.beat(true).catch((error: unknown) => this.logger.debug({ err: error }, 'leaving was not noted'));
  }

  async ask(): Promise<void> {
    try {
      this.neighbours = await this.port.beat(false);
    } catch (error) {
      // A replica from before there were beats.
      const isOld = isMargayError(error) && error.code === 'UNIMPLEMENTED';
      if (isOld) this.neighbours = { ...NOBODY, lowestSessionVersion: '0.0.0' };
      this.logger.debug({ err: error }, 'session was not told that this process lives');
    }
  }

  private get waitsFor(): string {
    const { lowestSessionVersion: lowest, olderServer, newerClient } = this.neighbours ?? NOBODY;
    if (lowest !== '' && compareVersions(lowest, this.version) < 0) return `a session replica of version ${lowest}`;
    return olderServer || newerClient;
  }
}

export interface GateOptions {
  services: readonly ServiceName[];
  environment: NodeJS.ProcessEnv;
  instance: string;
  version: string;
  management: ManagementServer;
  tls?: TlsIdentity | undefined;
  logger: Logger;
}

export interface StartedGate {
  isItsTurn: () => boolean;
  close: () => Promise<void>;
}

/** Starts the gate where this process is a client of session in other processes. */
export async function startVersionGate(options: GateOptions): Promise<StartedGate | undefined> {
  const { services, environment, instance, version, management, tls, logger } = options;
  const { MARGAY_SESSION_URL: url, MARGAY_KEYS_DIR: keysFolder } = parseConfig(GateConfig, environment);
  const [service] = services;
  if (services.includes('session') || service === undefined || url === undefined || keysFolder === undefined) return undefined; // prettier-ignore
  const keys = await KeyRing.load(keysFolder, service, { tls });
  const client = grpcClient(instancesPb.InstancesDefinition, url, { keys, logger });
  const call = { principal: systemPrincipal(service, 'platform'), timeoutMs: TIMEOUT_MS };
  const beat = (leaves: boolean) => client.beat({ instance, version, leaves }, call);
  const gate = new VersionGate({ beat }, version, logger);
  const gauge: Gauge = new Gauge({
    name: 'margay_version_gate_closed',
    help: '1 while this process waits for older servers, or newer clients, to be replaced',
    registers: [management.registry],
    collect: () => gauge.set(gate.isClosed ? 1 : 0),
  });
  management.registerCheck('process.version', 'ready', () => gate.check());
  await gate.start();
  const close = async () => {
    await gate.stop();
    client.close();
  };
  return { isItsTurn: () => gate.isItsTurn(), close };
}
