import { InvalidArgumentError } from '@margay/errors';
import type { RunnerCommand } from '@margay/log';
import { z } from 'zod';
import type { HeldRun } from '../dispatch/attached-runner';
import { RunnerMessage } from './runner-command.schema';

/**
 * The command that a runner sent, as one of its run and epoch.
 * @throws InvalidArgumentError `invalid_command`, also for what is no JSON
 */
export function parseCommand(json: string, commitId: string, { runId, epoch }: HeldRun): RunnerCommand {
  const parsed = RunnerMessage.safeParse(jsonOf(json));
  if (!parsed.success)
    throw new InvalidArgumentError(
      'invalid_command',
      `the command of ${commitId} is wrong: ${z.prettifyError(parsed.error)}`,
    );
  return { ...parsed.data, commitId, runId, epoch } as RunnerCommand;
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined; // no command of any kind
  }
}
