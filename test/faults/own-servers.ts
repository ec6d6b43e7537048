import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import {
  ensureNats,
  ensureStore,
  launcherConfig,
  startNats,
  startStore,
  TEST_SOURCES,
  type OpenServers,
  type RunningNats,
  type RunningStore,
} from '@margay/launcher';

/** A NATS server and a document store of one round alone, which may be killed, frozen and wiped. */
export class OwnServers implements OpenServers {
  private constructor(
    private readonly directory: string,
    private broker: RunningNats,
    private documents: RunningStore,
    private readonly start: {
      nats: (port: number) => Promise<RunningNats>;
      store: (port: number) => Promise<RunningStore>;
    },
  ) {}

  static async open(directory: string): Promise<OwnServers> {
    // Servers that the environment names belong to others.
    const { natsUrl: _, mongodbUrl: __, ...config } = launcherConfig();
    const found = await ensureNats({ config });
    const store = await ensureStore({ config, allow: TEST_SOURCES });
    if (found.kind === 'url' || store.kind === 'url') throw new Error('servers of the environment can not be struck');
    const { binary } = found;
    const { engine, version, command } = store;
    const natsIn = (port?: number) => startNats({ directory: join(directory, 'nats'), binary, ...(port && { port }) });
    const storeIn = (port?: number) =>
      startStore({ directory: join(directory, 'store'), engine, version, command, ...(port && { port }) });
    const nats = await natsIn();
    try {
      return new OwnServers(directory, nats, await storeIn(), { nats: natsIn, store: storeIn });
    } catch (error) {
      await nats.stop();
      throw error;
    }
  }

  get nats(): RunningNats {
    return this.broker;
  }

  get store(): RunningStore {
    return this.documents;
  }

  /** Kills the broker; a while later another one without any memory listens in its place. */
  async wipeBroker(downMs: number): Promise<void> {
    await this.killBroker();
    await delay(downMs);
    await this.startBroker();
  }

  async killBroker(): Promise<void> {
    this.broker.kill('SIGKILL');
    await this.broker.stop();
    await rm(join(this.directory, 'nats'), { recursive: true, force: true });
  }

  async startBroker(): Promise<void> {
    this.broker = await this.start.nats(this.broker.port);
  }

  /** Kills the store; a while later it goes on with the same files. */
  async killStore(downMs: number): Promise<void> {
    this.documents.kill('SIGKILL');
    await this.documents.stop();
    await delay(downMs);
    this.documents = await this.start.store(this.documents.port);
  }

  async freezeStore(ms: number): Promise<void> {
    this.documents.kill('SIGSTOP');
    try {
      await delay(ms);
    } finally {
      this.documents.kill('SIGCONT');
    }
  }

  async stop(): Promise<void> {
    this.documents.kill('SIGCONT');
    await Promise.all([this.broker.stop(), this.documents.stop()]);
  }
}
