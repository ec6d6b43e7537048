import { UnavailableError } from '@margay/errors';
import type { Command, Rejection } from './command';
import type { LoopRules } from './loop-rules';
import type { CommitOutcome } from './outcome';
import { COMMIT_MAX_BYTES } from './size';

/** A command that waits for its outcome. */
export interface Pending {
  command: Command;
  bodyHash: string;
  bytes: number;
  /** On the monotonic clock; checked right before the first insert is sent, never after. */
  deadlineMs: number;
  isSent: boolean;
  settle: (outcome: CommitOutcome) => void;
  fail: (error: Error) => void;
}

export type Refused = { item: Pending; rejection: Rejection };

export function without(pending: Pending[], settled: Pending[]): Pending[] {
  return pending.filter((item) => !settled.includes(item));
}

export function deadlineError(sessionId: string): Error {
  return new UnavailableError(
    'deadline',
    `session ${sessionId} was busy until the command's deadline; nothing was written`,
  );
}

/**
 * The commands of the next document: in order, each commit id once (a second copy gets the first one's outcome), at most
 * 512 KB together.
 */
export function takeBatch(queue: Pending[], { copiesJoin }: Pick<LoopRules, 'copiesJoin'>): Pending[] {
  const batch: Pending[] = [];
  const byId = new Map<string, Pending>();
  let bytes = 0;
  while (queue.length > 0) {
    const next = queue[0] as Pending;
    const first = copiesJoin ? byId.get(next.command.commitId) : undefined;
    if (first) {
      if (first.bodyHash !== next.bodyHash) break;
      queue.shift();
      follow(first, next);
      continue;
    }
    if (batch.length > 0 && bytes + next.bytes > COMMIT_MAX_BYTES) break;
    queue.shift();
    batch.push(next);
    byId.set(next.command.commitId, next);
    bytes += next.bytes;
  }
  return batch;
}

function follow(first: Pending, second: Pending): void {
  const { settle, fail } = first;
  first.settle = (outcome) => {
    settle(outcome);
    second.settle(outcome);
  };
  first.fail = (error) => {
    fail(error);
    second.fail(error);
  };
}
