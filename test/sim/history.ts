import { bodyHash, type Command, type CommitOutcome } from '@margay/log';

/** One command given to one replica's commit loop, and what came of it. */
export interface Submission {
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

  sent(command: Command, replica: string, nowMs: number): Submission {
    const submission: Submission = { command, replica, sentAtMs: nowMs, answeredAtMs: Infinity, outcome: undefined };
    this.submissions.push(submission);
    this.commands.set(`${command.commitId} ${bodyHash(command)}`, command);
    return submission;
  }

  command(commitId: string, hash: string): Command | undefined {
    return this.commands.get(`${commitId} ${hash}`);
  }
}
