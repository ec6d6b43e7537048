import { bodyHash, type Command, type CommitOutcome } from '@margay/log';

/** One command given to one replica's commit loop, and what came of it. */
export interface Submission {
  sessionId: string;
  command: Command;
  replica: string;
  sentAtMs: number;
  answeredAtMs: number;
  outcome: CommitOutcome | { failed: string } | undefined;
}

/** Everything that was asked of the log, for judging it afterwards. */
export class History {
  readonly submissions: Submission[] = [];
  private readonly commands = new Map<string, Command>();

  sent(sessionId: string, command: Command, replica: string, nowMs: number): Submission {
    const submission: Submission = {
      sessionId,
      command,
      replica,
      sentAtMs: nowMs,
      answeredAtMs: Infinity,
      outcome: undefined,
    };
    this.submissions.push(submission);
    this.commands.set(`${sessionId} ${command.commitId} ${bodyHash(command)}`, command);
    return submission;
  }

  command(sessionId: string, commitId: string, hash: string): Command | undefined {
    return this.commands.get(`${sessionId} ${commitId} ${hash}`);
  }
}
