import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { launcherConfig } from '../config';
import type { PidLedger } from '../processes/pid-ledger';
import { startCommand, type ProcessExit } from '../processes/supervised-process';

export interface StartNatsOptions {
  /** Holds the JetStream files and the log; kept by a later start. */
  directory: string;
  binary: string;
  /** Default: any free one. */
  port?: number;
  onExit?: (exit: ProcessExit) => void;
  ledger?: PidLedger;
}

export interface RunningNats {
  url: string;
  port: number;
  pid: number;
  stop(): Promise<void>;
  /** One signal to the process, e.g. SIGKILL or SIGSTOP in fault tests. */
  kill(signal: NodeJS.Signals): void;
}

const READY = /Listening for client connections on 127\.0\.0\.1:(\d+)[\s\S]*Server is ready/;

/** Starts a NATS server with JetStream on file, on loopback only. */
export async function startNats(options: StartNatsOptions): Promise<RunningNats> {
  const { directory, binary, port = -1, onExit, ledger } = options;
  await mkdir(directory, { recursive: true });
  const server = await startCommand({
    name: 'nats-server',
    command: binary,
    args: ['-a', '127.0.0.1', '-p', String(port), '-js', '-sd', join(directory, 'data')],
    env: launcherConfig().environment,
    logFile: join(directory, 'nats-server.log'),
    ready: { line: READY },
    ...(onExit && { onExit }),
    ...(ledger && { ledger }),
  });
  const listening = Number(server.ready?.[1]);
  return {
    url: `nats://127.0.0.1:${listening}`,
    port: listening,
    pid: server.pid,
    stop: () => server.stop(),
    kill: (signal) => server.kill(signal),
  };
}
