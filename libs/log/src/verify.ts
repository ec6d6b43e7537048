import { isoMicros } from '@margay/contracts';
import { hashOf } from './build';
import { commitKey, tipOf, type CommitDocument, type StoredFrame, type Tip } from './document';
import { emptyHead, type Head } from './head';

/** The first commit of a log that is wrong or missing. */
export interface LogFault {
  /** Its number. */
  c: number;
  /** What is wrong with it, for people. */
  problem: string;
}

/**
 * Checks a log commit by commit: numbers are dense, the hash chain holds, events are dense in number and rise in time, no
 * command is stored twice, and heads follow from those before them, as far as that can be told without the commands'
 * bodies, which are not stored. Pure; give it every document of a session in the order of the numbers.
 */
export class LogCheck {
  private tip: Tip;
  private readonly commitIds = new Set<string>();

  constructor(private readonly sessionId: string) {
    this.tip = { head: emptyHead(sessionId), hash: '' };
  }

  /** Number of the last commit that was found right. */
  get commits(): number {
    return this.tip.head.c;
  }

  /** Hash of that commit; empty before the first. */
  get headHash(): string {
    return this.tip.hash;
  }

  /** @returns what is wrong, if anything: the log is good up to the commit before it, and nothing may follow */
  next(document: CommitDocument): LogFault | undefined {
    const expectedC = this.commits + 1;
    if (document.c !== expectedC) return { c: expectedC, problem: `commit ${expectedC} is missing` };
    const problem =
      this.identityProblem(document) ??
      this.chainProblem(document) ??
      this.commandProblem(document) ??
      eventProblem(this.tip.head, document) ??
      headProblem(this.tip.head, document.head);
    if (problem !== undefined) return { c: expectedC, problem };
    for (const id of document.commitIds) this.commitIds.add(id);
    this.tip = tipOf(document);
    return undefined;
  }

  private identityProblem({ _id, c, sessionId, tenantId, head }: CommitDocument): string | undefined {
    if (sessionId !== this.sessionId || _id !== commitKey(this.sessionId, c)) return 'it belongs to another session';
    const { head: before } = this.tip;
    const isSame = head.sessionId === sessionId && head.tenantId === tenantId && head.c === c;
    if (!isSame || (before.c > 0 && before.tenantId !== tenantId)) return 'its head belongs to another commit';
    return undefined;
  }

  private chainProblem(document: CommitDocument): string | undefined {
    if (document.hash === hashOf(this.tip.hash, document)) return undefined;
    return 'its content is not what was hashed, or it does not follow the commit before it';
  }

  private commandProblem({ commitIds, commands }: CommitDocument): string | undefined {
    if (new Set(commitIds).size !== commitIds.length) return 'it names a command twice';
    const known = commitIds.find((id) => this.commitIds.has(id));
    if (known !== undefined) return `its command ${known} was stored before`;
    const answered = commands.map(({ commitId }) => commitId);
    return String(answered) === String(commitIds) ? undefined : 'its commands are not those that it names';
  }
}

/** Checks documents that lie in memory. @returns the first fault */
export function verifyLog(sessionId: string, documents: Iterable<CommitDocument>): LogFault | undefined {
  const check = new LogCheck(sessionId);
  for (const document of documents) {
    const fault = check.next(document);
    if (fault) return fault;
  }
  return undefined;
}

function eventProblem(before: Head, { events, head, ts0 }: CommitDocument): string | undefined {
  if (head.seq !== before.seq + events.length) return `it has ${events.length} events and ends at seq ${head.seq}`;
  if (ts0 <= before.ts || head.ts < ts0) return 'its time is not later than that of the commit before it';
  let earlierTs = before.ts;
  for (const [index, event] of events.entries()) {
    if (event.seq !== before.seq + 1 + index) return `its events are not dense at seq ${event.seq}`;
    if (event.ts <= earlierTs) return `the time of event ${event.seq} does not rise`;
    if (!isFrameOf(event)) return `the text of event ${event.seq} names another number or time`;
    earlierTs = event.ts;
  }
  if (events.length > 0 && (events[0]?.ts !== ts0 || earlierTs !== head.ts)) return 'its times are not its events’';
  return undefined;
}

function isFrameOf({ frame, seq, ts }: StoredFrame): boolean {
  try {
    const told = JSON.parse(frame) as { seq?: unknown; ts?: unknown };
    return told.seq === seq && told.ts === isoMicros(ts);
  } catch {
    return false; // not even JSON
  }
}

/** What no command can do to a head. */
function headProblem(before: Head, head: Head): string | undefined {
  for (const field of ['epoch', 'runNo', 'inboxEnd'] as const)
    if (head[field] < before[field]) return `its ${field} falls from ${before[field]} to ${head[field]}`;
  if (before.createdTs > 0 && (head.createdTs !== before.createdTs || head.owner !== before.owner))
    return 'it changes who created the session, or when';
  if (before.terminated && JSON.stringify(head.terminated) !== JSON.stringify(before.terminated))
    return 'it revives a terminated session';
  return runProblem(head) ?? cutProblem(head);
}

function runProblem({ sessionId, run, runNo, inboxEnd, terminated }: Head): string | undefined {
  if (!run) return undefined;
  if (terminated) return 'it has a run in a terminated session';
  if (run.id !== `${sessionId}:r${run.no}` || run.no > runNo) return `its run ${run.id} was never accepted`;
  return run.consumedTo > inboxEnd ? 'its run has read messages that nobody sent' : undefined;
}

function cutProblem({ cuts, seq }: Head): string | undefined {
  let end = 0;
  for (const [from, to] of cuts) {
    if (from <= end || to < from || to > seq) return 'its cuts overlap or reach beyond its events';
    end = to;
  }
  return undefined;
}
