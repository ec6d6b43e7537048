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
} from '@margay/platform';
import { Gauge } from 'prom-client';
import { GateConfig } from './config';
import type { ServiceName } from './service-names';

const BEAT_MS = 5_000;
const TIMEOUT_MS = 1_500;

/** What the gate asks of a session replica. */
export interface InstancesPort {
  /** @returns the lowest version among the session replicas that live */
  beat(leaves: boolean): Promise<string>;
}

/**
 * Keeps a process that is newer than a session replica out of service: it may ask for what that one does not know. Where
 * nobody answers other checks say so.
 */
export class VersionGate {
  private lowest = '';
  private timer?: NodeJS.Timeout;

  constructor(
    private readonly port: InstancesPort,
    private readonly version: string,
    private readonly logger: Logger,
  ) {}

  get isClosed(): boolean {
    return this.lowest !== '' && compareVersions(this.lowest, this.version) < 0;
  }

  /** @throws UnavailableError `version` */
  check(): void {
    if (this.isClosed)
      throw new UnavailableError('version', `a session replica of version ${this.lowest} still lives; ${this.version} waits until it is replaced`); // prettier-ignore
  }

  /** Resolves once session has been asked. */
  async start(): Promise<void> {
    await this.ask();
    this.timer = setInterval(() => void this.ask(), BEAT_MS);
    this.timer.unref();
  }

  async stop(): Promise<void> {
    clearInterval(this.timer);
    await this.port.beat(true).catch((error: unknown) => this.logger.debug({ err: error }, 'leaving was not noted'));
  }

  async ask(): Promise<void> {
    try {
      this.lowest = await this.port.beat(false);
    } catch (error) {
      // A replica from before there were beats.
      this.lowest = isMargayError(error) && error.code === 'UNIMPLEMENTED' ? '0.0.0' : '';
      this.logger.debug({ err: error }, 'session was not told that this process lives');
    }
  }
}

export interface GateOptions {
  services: readonly ServiceName[];
  environment: NodeJS.ProcessEnv;
  instance: string;
  version: string;
  management: ManagementServer;
  logger: Logger;
}

/** Starts the gate where this process is a client of session in other processes. @returns what closes it */
export async function startVersionGate(options: GateOptions): Promise<(() => Promise<void>) | undefined> {
  const { services, environment, instance, version, management, logger } = options;
  const { MARGAY_SESSION_URL: url, MARGAY_KEYS_DIR: keysFolder } = parseConfig(GateConfig, environment);
  const [service] = services;
  if (services.includes('session') || service === undefined || url === undefined || keysFolder === undefined) return undefined; // prettier-ignore
  const keys = await KeyRing.load(keysFolder, service);
  const client = grpcClient(instancesPb.InstancesDefinition, url, { keys, logger });
  const call = { principal: systemPrincipal(service, 'platform'), timeoutMs: TIMEOUT_MS };
  const beat = async (leaves: boolean) => (await client.beat({ instance, version, leaves }, call)).lowestSessionVersion;
  const gate = new VersionGate({ beat }, version, logger);
  const gauge: Gauge = new Gauge({
    name: 'margay_version_gate_closed',
    help: '1 while this process waits for older session replicas, or newer clients, to be replaced',
    registers: [management.registry],
    collect: () => gauge.set(gate.isClosed ? 1 : 0),
  });
  management.registerCheck('process.version', 'ready', () => gate.check());
  await gate.start();
  return async () => {
    await gate.stop();
    client.close();
  };
}
