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
  /** All that were ever sent under one commit id. */
  private readonly commands = new Map<string, Command[]>();

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
    const key = `${sessionId} ${command.commitId}`;
    const known = this.commands.get(key) ?? [];
    // A repeat is the same object most often.
    if (!known.includes(command)) this.commands.set(key, [...known, command]);
    return submission;
  }

  command(sessionId: string, commitId: string, hash: string): Command | undefined {
    const [first, ...others] = this.commands.get(`${sessionId} ${commitId}`) ?? [];
    return others.length === 0 ? first : [first, ...others].find((command) => command && bodyHash(command) === hash);
  }
}
