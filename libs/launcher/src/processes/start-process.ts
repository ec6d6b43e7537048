import { InvalidArgumentError } from '@margay/errors';
import { launcherConfig } from '../config';
import type { PidLedger } from './pid-ledger';
import { startCommand, type ProcessExit, type SupervisedProcess } from './supervised-process';

export interface NodeProcessOptions {
  name: string;
  /** Script to run with this Node. */
  entry: string;
  args?: readonly string[];
  /** Added to the environment of this process. */
  env?: Readonly<NodeJS.ProcessEnv>;
  cwd?: string;
  /** Ready when this URL answers 200 … */
  readyUrl?: string;
  /** … or when this line stands in the log. One of the two must be given. */
  readyLine?: RegExp;
  readyTimeoutMs?: number;
  logFile: string;
  /** Old-space limit; default 768. */
  maxOldSpaceMb?: number;
  onExit?: (exit: ProcessExit) => void;
  ledger?: PidLedger;
  /** Gives up a start that is not ready yet. */
  signal?: AbortSignal;
}

/** Starts a Node process with the memory limits that Margay's services run under. */
export function startProcess(options: NodeProcessOptions): Promise<SupervisedProcess> {
  const { name, entry, args = [], env, readyUrl, readyLine, maxOldSpaceMb = 768, ...rest } = options;
  const ready = readyUrl !== undefined ? { url: readyUrl } : readyLine && { line: readyLine };
  if (!ready) throw new InvalidArgumentError('readiness_missing', `process ${name} needs readyUrl or readyLine`);
  return startCommand({
    ...rest,
    name,
    ready,
    command: process.execPath,
    args: ['--max-semi-space-size=16', `--max-old-space-size=${maxOldSpaceMb}`, entry, ...args],
    env: { ...launcherConfig().environment, ...env },
  });
}
