import { fork, type ChildProcess } from 'node:child_process';
import { AgentRunnerConfig } from '../config';
import { RUN_ALONE } from './messages';

/** Beside what an agent-runner reads: what Node, the system and telemetry read. */
const NEEDED_TOO =
  /^(PATH|HOME|TMPDIR|TZ|LANG|LC_\w+|NODE_\w+|OTEL_\w+|MARGAY_LOG_LEVEL|MARGAY_FAULT_POINTS|MARGAY_TLS_DIR)$/;
/** Settings of this process that a child has values of its own for, or that two processes can't share. */
const OWN_SETTINGS = /^--(max-old-space-size|max-semi-space-size|inspect)/;
const MAX_SEMI_SPACE_MB = 16;

export interface ChildOptions {
  /** Script that knows `--run-alone`. */
  entry: string;
  heapMb: number;
  environment: NodeJS.ProcessEnv;
  /** Where its log goes; default: where that of this process does. */
  log?: 'inherit' | 'ignore';
}

/** Starts a process for one run. */
export function startChild({ entry, heapMb, environment, log = 'inherit' }: ChildOptions): ChildProcess {
  return fork(entry, [RUN_ALONE], {
    env: childEnvironment(environment),
    execArgv: [
      ...process.execArgv.filter((setting) => !OWN_SETTINGS.test(setting)),
      `--max-semi-space-size=${MAX_SEMI_SPACE_MB}`,
      `--max-old-space-size=${heapMb}`,
    ],
    stdio: ['ignore', log, log, 'ipc'],
  });
}

/** The part of the runner's environment that a run needs: never more than the runner has. */
export function childEnvironment(environment: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  const names = new Set(Object.keys(AgentRunnerConfig.shape).flatMap((name) => [name, `${name}_FILE`]));
  return Object.fromEntries(Object.entries(environment).filter(([name]) => names.has(name) || NEEDED_TOO.test(name)));
}
