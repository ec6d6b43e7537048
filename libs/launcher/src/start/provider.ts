import { access } from 'node:fs/promises';
import { join } from 'node:path';
import type { PidLedger } from '../processes/pid-ledger';
import { startProcess } from '../processes/start-process';
import type { ProcessExit } from '../processes/supervised-process';
import type { Progress } from '../progress';

const DEMO_READY = /demo model listening on (http:\/\/127\.0\.0\.1:\d+\/v1)/;
const DEMO_MODEL = 'margay-demo';

export interface Provider {
  /** Added to the environment of the Margay processes. */
  env: NodeJS.ProcessEnv;
  stop(): Promise<void>;
}

export interface ProviderOptions {
  environment: Readonly<NodeJS.ProcessEnv>;
  home: string;
  /** Script of the demonstration model. */
  demoModel: string;
  progress: Progress;
  ledger: PidLedger;
  /** The demonstration model ended by itself or was stopped. */
  onExit: (exit: ProcessExit) => void;
}

/** The model provider of the environment, else the demonstration model on loopback, and says so. */
export async function openProvider(options: ProviderOptions): Promise<Provider> {
  const { environment, progress } = options;
  if (environment.OPENAI_API_KEY || environment.OPENAI_BASE_URL) {
    progress(`model provider: ${environment.OPENAI_BASE_URL ? 'OPENAI_BASE_URL' : 'OPENAI_API_KEY'}`);
    if (!environment.MARGAY_MODEL) progress('MARGAY_MODEL is not set: name a model there, or in each session');
    return { env: {}, stop: async () => undefined };
  }
  return startDemoModel(options);
}

async function startDemoModel({
  demoModel,
  home,
  ledger,
  progress,
  environment,
  onExit,
}: ProviderOptions): Promise<Provider> {
  await access(demoModel);
  const server = await startProcess({
    name: 'demo-model',
    entry: demoModel,
    args: ['--port', '0'],
    readyLine: DEMO_READY,
    logFile: join(home, 'logs', 'demo-model.log'),
    maxOldSpaceMb: 128,
    ledger,
    onExit,
  });
  progress(
    'model provider: the demonstration model (scripted, offline); set OPENAI_API_KEY and MARGAY_MODEL for a real one',
  );
  const env = {
    OPENAI_BASE_URL: server.ready?.[1],
    OPENAI_API_KEY: 'demo',
    MARGAY_MODEL: environment.MARGAY_MODEL || DEMO_MODEL,
  };
  return { env, stop: () => server.stop() };
}
