import { parseArgs } from 'node:util';
import { InvalidArgumentError } from '@margay/errors';
import type { PlatformMode } from '../platform/services';

export const START_USAGE = `npm start -- [options] [task text]

Brings Margay up on this machine, on loopback only. With a task: runs it, prints the answer and ends everything again.

  --workspace DIR    folder the agent works in; without it a new copy of a small sample project
  --workspace-copy   work in a copy of that folder instead of in place
  --runners N        agent-runner processes (default 1)
  --split            one process per service instead of two
  --port N           port of the gateway (default 8787, or a free one)
  --home DIR         state, keys and logs (default $MARGAY_HOME or ~/.margay)
  --help             this text`;

export interface StartOptions {
  task?: string;
  workspace?: string;
  isWorkspaceCopied: boolean;
  runners: number;
  mode: PlatformMode;
  port?: number;
  home?: string;
  isHelp: boolean;
}

/** Reads the arguments of `npm start`; a wrong one is refused with the usage. */
export function parseStartOptions(args: readonly string[]): StartOptions {
  const { values, positionals } = parse(args);
  const task = positionals.join(' ').trim();
  if (values['workspace-copy'] && values.workspace === undefined)
    throw usageError('--workspace-copy needs --workspace DIR');
  return {
    ...(task !== '' && { task }),
    ...(values.workspace !== undefined && { workspace: values.workspace }),
    ...(values.home !== undefined && { home: values.home }),
    ...(values.port !== undefined && { port: integer('--port', values.port, 1, 65_535) }),
    isWorkspaceCopied: values['workspace-copy'] ?? false,
    runners: values.runners === undefined ? 1 : integer('--runners', values.runners, 1, 32),
    mode: values.split ? 'split' : 'combined',
    isHelp: values.help ?? false,
  };
}

function parse(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      allowPositionals: true,
      options: {
        workspace: { type: 'string' },
        'workspace-copy': { type: 'boolean' },
        runners: { type: 'string' },
        split: { type: 'boolean' },
        port: { type: 'string' },
        home: { type: 'string' },
        help: { type: 'boolean', short: 'h' },
      },
    });
  } catch (cause) {
    throw usageError(cause instanceof Error ? cause.message : String(cause), cause);
  }
}

function integer(name: string, text: string, minimum: number, maximum: number): number {
  const value = Number(text);
  if (Number.isInteger(value) && value >= minimum && value <= maximum) return value;
  throw usageError(`${name} must be a whole number from ${minimum} to ${maximum}, not "${text}"`);
}

function usageError(message: string, cause?: unknown): Error {
  return new InvalidArgumentError('usage', `${message}\n\n${START_USAGE}`, { cause });
}
