import {
  AlreadyExistsError,
  FailedPreconditionError,
  InvalidArgumentError,
  NotFoundError,
  type MargayError,
} from '@margay/errors';
import type { Command, CommitLoop, CommitOutcome, Rejection } from '@margay/log';

type Stored = Extract<CommitOutcome, { ok: true }>;

/** Appends a command. @throws the error of its rejection */
export async function submit(loop: CommitLoop, sessionId: string, command: Command): Promise<Stored> {
  const outcome = await loop.submit(sessionId, command);
  if (outcome.ok) return outcome;
  throw rejected(outcome.rejection);
}

export function rejected({ reason, message }: Rejection): MargayError {
  switch (reason) {
    case 'session_not_found':
      return new NotFoundError(reason, message);
    case 'session_exists':
      return new AlreadyExistsError(reason, message);
    case 'invalid':
    case 'head_too_large':
      return new InvalidArgumentError(reason, message);
    default:
      return new FailedPreconditionError(reason, message);
  }
}
