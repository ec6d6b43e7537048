import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { UnavailableError } from '@margay/errors';
import { launcherConfig } from '../config';
import type { PidLedger } from '../processes/pid-ledger';
import { freePorts } from '../processes/ports';
import {
  startCommand,
  type ProcessExit,
  type Readiness,
  type SupervisedProcess,
} from '../processes/supervised-process';
import { claimDataFolder, type StoreEngine } from './data-folder';
import { ensureReplicaSet } from './replica-set';

export interface StartStoreOptions {
  /** Data, log and the record of engine and version; a later start with another engine is refused. */
  directory: string;
  engine: StoreEngine;
  version: string;
  /** Program and the arguments that come before ours. */
  command: readonly string[];
  /** Default: any free one. */
  port?: number;
  onExit?: (exit: ProcessExit) => void;
  ledger?: PidLedger;
}

export interface RunningStore {
  /** Connection URI without a database. */
  url: string;
  engine: StoreEngine;
  version: string;
  port: number;
  pid: number;
  stop(): Promise<void>;
  /** One signal to the process, e.g. SIGKILL in fault tests. */
  kill(signal: NodeJS.Signals): void;
}

/** Starts a document store on loopback only. Every acknowledged write is on disk. */
export async function startStore(options: StartStoreOptions): Promise<RunningStore> {
  const { directory, engine, version } = options;
  await claimDataFolder(directory, { engine, version });
  const port = options.port ?? (await portFor(engine));
  const server = await (engine === 'mongod' ? startMongod(options, port) : startSecantus(options, port));
  const listening = Number(server.ready?.[1] ?? port);
  return {
    // Direct: there is one member, and its recorded address may be that of an earlier port.
    url: `mongodb://127.0.0.1:${listening}/?directConnection=true`,
    engine,
    version,
    port: listening,
    pid: server.pid,
    stop: () => server.stop(),
    kill: (signal) => server.kill(signal),
  };
}

/** secantusd-rs chooses a port by itself; the others must be told one. */
async function portFor(engine: StoreEngine): Promise<number> {
  if (engine === 'secantusd-rs') return 0;
  const [port] = await freePorts(1);
  if (port === undefined) throw new UnavailableError('no_free_port', 'no loopback port is free for the document store');
  return port;
}

async function startSecantus(options: StartStoreOptions, port: number): Promise<SupervisedProcess> {
  const storage = ['--storage-path', join(options.directory, 'data'), '--sync-on-commit', '--cache-size', '256M'];
  const args = ['--host', '127.0.0.1', '--port', String(port), ...storage, '--log-level', 'ERROR'];
  // The Python build knows no limit for its log files and does not say when it listens.
  if (options.engine === 'secantusd-py') return launch(options, args, { port });
  return launch(options, [...args, '--log-file-max', '16MB'], { line: /listening on 127\.0\.0\.1:(\d+)/ });
}

async function startMongod(options: StartStoreOptions, port: number): Promise<SupervisedProcess> {
  const data = join(options.directory, 'data');
  const network = ['--bind_ip', '127.0.0.1', '--port', String(port), '--nounixsocket'];
  const server = await launch(options, ['--dbpath', data, ...network, '--replSet', 'margay'], {
    line: /"Waiting for connections".*?"port":(\d+)/,
  });
  try {
    await ensureReplicaSet(port);
    return server;
  } catch (error) {
    await server.stop();
    throw error;
  }
}

async function launch(
  options: StartStoreOptions,
  args: readonly string[],
  ready: Readiness,
): Promise<SupervisedProcess> {
  const [program = '', ...first] = options.command;
  await mkdir(join(options.directory, 'data'), { recursive: true });
  return startCommand({
    name: options.engine,
    command: program,
    args: [...first, ...args],
    env: { ...launcherConfig().environment, PYTHONUNBUFFERED: '1' },
    logFile: join(options.directory, `${options.engine}.log`),
    ready,
    // Not where a settings file of the user's might lie.
    cwd: options.directory,
    readyTimeoutMs: 60_000,
    ...(options.onExit && { onExit: options.onExit }),
    ...(options.ledger && { ledger: options.ledger }),
  });
}
