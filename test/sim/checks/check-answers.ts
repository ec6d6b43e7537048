import {
  bodyHash,
  decide,
  emptyHead,
  isRejected,
  type Command,
  type CommitDocument,
  type CommitOutcome,
  type Head,
} from '@margay/log';
import type { Submission } from '../world/history';
import type { World } from '../world/world';

/** A head and the time during which it may have been the session's: from its insert to the next one's acknowledgement. */
interface Reign {
  head: Head;
  fromMs: number;
  toMs: number;
}

/** Failures that promise that nothing was written. */
const NOTHING_WRITTEN = new Set(['deadline', 'session_busy']);

/** Judges what senders were told against the log. */
export function checkAnswers(world: World, sessionId: string, documents: CommitDocument[]): void {
  const byCommitId = new Map(documents.flatMap((document) => document.commitIds.map((id) => [id, document] as const)));
  const reigns = reignsOf(world, sessionId, documents);
  const submissions = world.history.submissions.filter((submission) => submission.sessionId === sessionId);
  const attempts = new Map<string, number>();
  for (const { command } of submissions) attempts.set(command.commitId, (attempts.get(command.commitId) ?? 0) + 1);
  for (const submission of submissions) {
    const { command, outcome } = submission;
    const stored = byCommitId.get(command.commitId);
    if (!outcome) continue;
    if ('failed' in outcome)
      checkFailure(world, submission, outcome.failed, attempts.get(command.commitId) === 1 ? stored : undefined);
    else if (outcome.ok) checkAcceptance(world, submission, outcome, stored);
    else checkRejection(world, submission, outcome, stored, reigns);
  }
}

function reignsOf(world: World, sessionId: string, documents: CommitDocument[]): Reign[] {
  const entries = documents.map(({ _id }) => world.store.entries.get(_id));
  const acknowledgedAt = (index: number): number => entries[index]?.acknowledgedAtMs ?? Infinity;
  return [
    { head: emptyHead(sessionId), fromMs: 0, toMs: acknowledgedAt(0) },
    ...documents.map(({ head }, index) => ({
      head,
      fromMs: entries[index]?.insertedAtMs ?? 0,
      toMs: acknowledgedAt(index + 1),
    })),
  ];
}

function checkFailure(
  world: World,
  { command }: Submission,
  reason: string,
  onlyAttempt: CommitDocument | undefined,
): void {
  if (NOTHING_WRITTEN.has(reason) && onlyAttempt)
    world.fail('written after all', `${command.commitId} failed by ${reason} and is in ${onlyAttempt._id}`);
  if (reason.includes('Error')) world.fail('loop error', `${command.commitId}: ${reason}`);
}

function checkAcceptance(
  world: World,
  { command }: Submission,
  outcome: CommitOutcome & { ok: true },
  stored: CommitDocument | undefined,
): void {
  const told = JSON.stringify(outcome.answer);
  const kept = JSON.stringify(stored?.commands.find(({ commitId }) => commitId === command.commitId)?.answer);
  if (stored?.c !== outcome.c || told !== kept)
    world.fail('answer', `${command.commitId} was told ${outcome.c} ${told}, the log has ${stored?.c} ${kept}`);
}

/** Their sender takes a refusal for the last word, and goes on. */
function isRunners({ kind }: Command): boolean {
  return kind === 'step' || kind === 'finish' || kind === 'release';
}

function checkRejection(
  world: World,
  { command, sentAtMs, answeredAtMs }: Submission,
  { rejection }: CommitOutcome & { ok: false },
  stored: CommitDocument | undefined,
  reigns: Reign[],
): void {
  if (rejection.reason === 'idempotency_key_reused') {
    const kept = stored?.commands.find(({ commitId }) => commitId === command.commitId);
    if (!kept || kept.bodyHash === bodyHash(command)) world.fail('key reused', `${command.commitId} was not`);
    return;
  }
  if (stored && isRunners(command)) world.fail('stored after its refusal', `${command.commitId} is in ${stored._id}`);
  const storedAtMs = (stored && world.store.entries.get(stored._id)?.acknowledgedAtMs) ?? Infinity;
  if (storedAtMs < sentAtMs) world.fail('refused though stored', `${command.commitId}: ${rejection.reason}`);
  const isTrue = reigns.some(({ head, fromMs, toMs }) => {
    if (fromMs > answeredAtMs || toMs < sentAtMs) return false;
    const decision = decide(head, command, head.ts + 1);
    return isRejected(decision) && decision.reject.reason === rejection.reason;
  });
  if (!isTrue) world.fail('false rejection', `${command.commitId} ${command.kind}: ${rejection.reason}`);
}
