import { join } from 'node:path';
import type { LauncherConfig } from './config';
import type { PidLedger } from './processes/pid-ledger';
import type { ProcessExit } from './processes/supervised-process';
import type { Progress } from './progress';
import { ensureNats } from './provision/nats';
import { ensureStore } from './provision/store';
import type { StoreSource } from './provision/store-binary';
import type { StoreEngine } from './servers/data-folder';
import { startNats } from './servers/nats-server';
import { startStore } from './servers/store-server';

export interface OpenServerOptions {
  /** Data and logs; unused for a server named by the environment. */
  directory: string;
  progress?: Progress;
  config?: LauncherConfig;
  onExit?: (exit: ProcessExit) => void;
  ledger?: PidLedger;
}

/** A server to use: started here, or found in the environment and then left running by `stop`. */
export interface OpenServer {
  url: string;
  /** Undefined for a server that somebody else runs. */
  pid?: number;
  stop(): Promise<void>;
}

export interface OpenStore extends OpenServer {
  engine: StoreEngine | 'external';
  version?: string;
}

/** Finds or fetches a NATS server and starts it. */
export async function openNats(options: OpenServerOptions): Promise<OpenServer> {
  const { directory, onExit, ledger, progress, config } = options;
  const found = await ensureNats({ ...(progress && { progress }), ...(config && { config }) });
  if (found.kind === 'url') return { url: found.url, stop: async () => undefined };
  return startNats({ directory, binary: found.binary, ...(onExit && { onExit }), ...(ledger && { ledger }) });
}

/** Finds or fetches a document store fit for the data folder and starts it. */
export async function openStore(options: OpenServerOptions & { allow?: readonly StoreSource[] }): Promise<OpenStore> {
  const found = await ensureStore(options);
  if (found.kind === 'url') return { url: found.url, engine: 'external', stop: async () => undefined };
  const { directory, onExit, ledger } = options;
  const { engine, version, command } = found;
  return startStore({ directory, engine, version, command, ...(onExit && { onExit }), ...(ledger && { ledger }) });
}

export interface OpenServers {
  nats: OpenServer;
  store: OpenStore;
  stop(): Promise<void>;
}

/** Both servers under one folder; when one does not come up, the other is stopped again. */
export async function openServers(
  options: OpenServerOptions & { allow?: readonly StoreSource[] },
): Promise<OpenServers> {
  const { allow, directory, ...common } = options;
  const [nats, store] = await Promise.allSettled([
    openNats({ ...common, directory: join(directory, 'nats') }),
    openStore({ ...common, directory: join(directory, 'store'), ...(allow && { allow }) }),
  ]);
  if (nats.status === 'fulfilled' && store.status === 'fulfilled') {
    const stop = async () => {
      await Promise.all([nats.value.stop(), store.value.stop()]);
    };
    return { nats: nats.value, store: store.value, stop };
  }
  for (const result of [nats, store]) if (result.status === 'fulfilled') await result.value.stop();
  throw nats.status === 'rejected' ? nats.reason : (store as PromiseRejectedResult).reason;
}
