import { spawn } from 'node:child_process';
import { endWithUs } from '../processes/children';

/** How long an interrupted client may take to say good-bye. */
const CLIENT_GRACE_MS = 5_000;

export interface TaskOptions {
  /** The command-line client's bundle. */
  cli: string;
  task: string;
  workspace: string;
  home: string;
  gatewayUrl: string;
  apiKeyFile: string;
  environment: Readonly<NodeJS.ProcessEnv>;
  signal: AbortSignal;
}

/** Runs one task by the command-line client in a new session on the workspace; answers the client's exit code. */
export function runTask(options: TaskOptions): Promise<number> {
  const { cli, task, workspace, environment, gatewayUrl, apiKeyFile, home, signal } = options;
  const child = spawn(process.execPath, [cli, 'run', '--cwd', workspace, '--', task], {
    env: {
      ...environment,
      MARGAY_URL: gatewayUrl,
      MARGAY_API_KEY: undefined,
      MARGAY_API_KEY_FILE: apiKeyFile,
      MARGAY_HOME: home,
    },
    stdio: 'inherit',
  });
  endWithUs(child, false);
  // A terminal's Ctrl-C reaches the client by itself; this is for a signal to the launcher alone.
  const onAbort = () => setTimeout(() => child.kill('SIGTERM'), CLIENT_GRACE_MS).unref();
  signal.addEventListener('abort', onAbort, { once: true });
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('exit', (code, ended) => resolve(code ?? (ended === 'SIGINT' || ended === 'SIGTERM' ? 130 : 1)));
  });
}
