import { spawn } from 'node:child_process';
import { InternalError } from '@margay/errors';
import { z } from 'zod';
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
  apiKey: string;
  apiKeyFile: string;
  environment: Readonly<NodeJS.ProcessEnv>;
  signal: AbortSignal;
}

/** Runs one task by the command-line client in a session on the workspace; answers the client's exit code. */
export async function runTask(options: TaskOptions): Promise<number> {
  const sessionId = await createSession(options);
  const { cli, task, environment, gatewayUrl, apiKeyFile, home, signal } = options;
  const child = spawn(process.execPath, [cli, 'run', '--session', sessionId, '--', task], {
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

const CreatedSession = z.object({ session_id: z.string() });

async function createSession({ gatewayUrl, apiKey, workspace, signal }: TaskOptions): Promise<string> {
  const response = await fetch(`${gatewayUrl}/api/sessions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-api-key': apiKey },
    body: JSON.stringify({ cwd: workspace }),
    signal,
  });
  const text = await response.text();
  if (!response.ok)
    throw new InternalError('session_not_created', `the gateway answered ${response.status} to a new session: ${text}`);
  return CreatedSession.parse(JSON.parse(text)).session_id;
}
