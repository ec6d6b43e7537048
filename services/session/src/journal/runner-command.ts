import { InvalidArgumentError } from '@margay/errors';
import type { RunnerCommand } from '@margay/log';
import { z } from 'zod';
import type { HeldRun } from '../dispatch/attached-runner';
import { RunnerMessage } from './runner-command.schema';

/**
 * The command that a runner sent, as one of its run and epoch.
 * @throws InvalidArgumentError `invalid_command`, also for what is no JSON
 */
export function parseCommand(json: string, commitId: string, { sessionId, runId, epoch }: HeldRun): RunnerCommand {
  const wrong = (what: string) =>
    new InvalidArgumentError('invalid_command', `the command of ${commitId} is wrong: ${what}`);
  const parsed = RunnerMessage.safeParse(jsonOf(json));
  if (!parsed.success) throw wrong(z.prettifyError(parsed.error));
  // Questions are noted under their ids alone, over all sessions.
  const questions = parsed.data.kind === 'step' ? (parsed.data.questions ?? []) : [];
  if (!questions.every(({ callId }) => callId.startsWith(`${sessionId}.`)))
    throw wrong('a question must be one of a call of its session');
  return { ...parsed.data, commitId, runId, epoch } as RunnerCommand;
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined; // no command of any kind
  }
}
