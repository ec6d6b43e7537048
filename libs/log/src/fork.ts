import { isoMicros, type EventInput } from '@margay/contracts';
import { frame, hashOf } from './build';
import { endRun } from './decide-run';
import type { DecidedEvent } from './decision';
import { commitKey, tipOf, type CommitDocument, type Effect, type StoredCommand, type Tip } from './document';
import { CopiedCommit } from './fork-copy';
import { emptyHead, type Head, type HeadRun, type LastRun } from './head';
import { packRecord } from './references';

/** Copied commits are joined up to about this size; UTF-16 units. */
const COMMIT_CHARS = 256 * 1024;
const COMMIT_EVENTS = 500;
/** As for every commit: after this long unmarked effects are the janitor's. */
const EFFECTS_GRACE_MS = 1_500;
export const FORK_CUT_TEXT = '(Run cut off by fork)';

/** Everything that a fork is made of; fixed before its first commit, so that whoever finishes it makes the same bytes. */
export interface ForkPlan {
  /** The new session. */
  sessionId: string;
  tenantId: string;
  /** Who forks owns the fork. */
  owner: string;
  tag: string | null;
  title: string | null;
  /** Model of the fork's next runs; null = as before. */
  model: string | null;
  source: {
    sessionId: string;
    /** Last commit that is read. */
    c: number;
    /** Events up to this time are copied; microseconds. */
    ts: number;
    /** Ranges of seq that are left out. */
    cuts: Head['cuts'];
  };
  /** Time of the event that was named as the last one; null: all are copied. */
  forkedAtTs: number | null;
}

/**
 * Writes the log of a fork: the source's commits go in, in order, the fork's come out. Events keep their time, their
 * text and the ids of the runs they belong to; only their number is the fork's. Private records are copied as they are, so
 * the next run goes on with the same conversation. Until its last commit a fork is half made: its head has no creation time.
 */
export class ForkWriter {
  private tip: Tip;
  private readonly gathered: CopiedCommit[] = [];
  private chars = 0;
  private events = 0;
  /** What the source was at the point. */
  private source: Head;
  private context: Record<string, unknown> = {};
  private openRun: { id: string; acceptedTs: number } | undefined;
  private lastRun: LastRun | null = null;

  constructor(private readonly plan: ForkPlan) {
    this.tip = { head: { ...emptyHead(plan.sessionId), tenantId: plan.tenantId }, hash: '' };
    this.source = emptyHead(plan.source.sessionId);
  }

  /** @param document the next commit of the source @returns a commit of the fork where enough has been gathered */
  add(document: CommitDocument): CommitDocument | undefined {
    const copied = new CopiedCommit(document, this.plan.source);
    this.source = document.head;
    this.follow(copied);
    if (copied.isEmpty) return undefined;
    const isFull = this.chars + copied.chars > COMMIT_CHARS || this.events + copied.events.length > COMMIT_EVENTS;
    const ready = isFull ? this.flush() : undefined;
    this.gathered.push(copied);
    this.chars += copied.chars;
    this.events += copied.events.length;
    return ready;
  }

  /** What is left of the copy. */
  flush(): CommitDocument | undefined {
    if (this.gathered.length === 0) return undefined;
    const parts = this.gathered.splice(0);
    this.chars = 0;
    this.events = 0;
    const c = this.tip.head.c + 1;
    const copied = parts.flatMap(({ events }) => events);
    const frames = copied.map((event, index) => event.renumbered(this.tip.head.seq + 1 + index));
    const ts0 = frames[0]?.ts ?? parts[0]?.ts0 ?? 0;
    const head: Head = { ...this.tip.head, c, seq: this.tip.head.seq + frames.length, ts: frames.at(-1)?.ts ?? ts0 };
    const payloads = copied.map(({ payload }) => payload);
    const records = parts.flatMap((part) => part.records).map((record) => packRecord(record, payloads));
    const command = { commitId: `fork.${c}`, bodyHash: '', answer: {} };
    return this.append({ head, events: frames, records, commands: [command], effects: [], effectsDueAt: null, ts0 });
  }

  /**
   * The commit that makes the fork a session, after all others were stored: what was under way at the point is ended,
   * then come the fork's own `session` and `context` events.
   */
  close(nowMicros: number, { commitId, bodyHash }: { commitId: string; bodyHash: string }): CommitDocument {
    const ts0 = Math.max(nowMicros, this.tip.head.ts + 1);
    const ended = this.ended();
    const { source, forkedAtTs, model, sessionId } = this.plan;
    const context = {
      forked_from: source.sessionId,
      ...(forkedAtTs === null ? {} : { forked_at: isoMicros(forkedAtTs) }),
      ...(model === null ? {} : { model }),
    };
    const own: EventInput[] = [
      { type: 'session', payload: { event: 'created' } },
      { type: 'context', payload: context },
    ];
    const events = [...ended.events, ...own.map((event) => ({ event, runId: null }))];
    const { seq } = this.tip.head;
    const frames = events.map(({ event, runId }, index) => frame(event, runId, seq + 1 + index, ts0 + index));
    const head: Head = {
      ...ended.head,
      createdTs: ts0 + ended.events.length,
      context: { ...this.context, ...context },
      c: this.tip.head.c + 1,
      seq: seq + frames.length,
      ts: ts0 + frames.length - 1,
    };
    const answer = {
      session_id: sessionId,
      forked_from: source.sessionId,
      forked_at: forkedAtTs === null ? null : isoMicros(forkedAtTs),
    };
    return this.append({
      head,
      events: frames,
      records: ended.records.map((record) => JSON.stringify(record)),
      commands: [{ commitId, bodyHash, answer }],
      effects: [{ kind: 'session' }],
      effectsDueAt: Math.floor(nowMicros / 1_000) + EFFECTS_GRACE_MS,
      ts0,
    });
  }

  /** Context and runs follow from all events up to the point, also from those that readers skip. */
  private follow({ seen, document }: CopiedCommit): void {
    for (const [index, { type, payload, run_id: runId }] of seen.entries()) {
      if (type === 'context') this.context = { ...this.context, ...payload };
      else if (runId === undefined) continue;
      // A run is accepted with its first event, the one before this.
      else if (type === 'run_accepted') this.openRun = { id: runId, acceptedTs: (document.events[index]?.ts ?? 0) - 1 };
      else if (type === 'completion') {
        const accepted = this.openRun?.id === runId ? { acceptedTs: this.openRun.acceptedTs } : {};
        if (this.openRun?.id === runId) this.openRun = undefined;
        const last = document.head.lastRun;
        const { done, done_reason: doneReason } = payload as { done: boolean; done_reason: string };
        this.lastRun = last?.id === runId ? last : { id: runId, ...accepted, done, doneReason };
      }
    }
  }

  /** The fork's head with nothing under way, and the events that end what was. */
  private ended(): { head: Head; events: DecidedEvent[]; records: object[] } {
    const { source, plan, openRun, lastRun } = this;
    const head: Head = {
      ...this.tip.head,
      owner: plan.owner,
      tag: plan.tag,
      title: plan.title,
      binding: source.binding,
      epoch: source.epoch,
      runNo: source.runNo,
      inboxEnd: source.inboxEnd,
      lastRun,
    };
    if (!openRun) return { head, events: [], records: [] };
    const run: HeadRun = {
      id: openRun.id,
      no: source.runNo,
      state: 'running',
      owner: null,
      pool: '',
      acceptedTs: openRun.acceptedTs,
      principal: '',
      consumedTo: source.inboxEnd,
    };
    const asked = source.questions?.filter(({ ts }) => ts <= plan.source.ts) ?? [];
    const closed = endRun(
      { ...head, ...(asked.length > 0 ? { questions: asked } : {}) },
      run,
      { text: FORK_CUT_TEXT },
      CUT_OFF,
    );
    // A late answer to the original's question is none to the fork's.
    const { unanswered: _unanswered, ...rest } = closed.head;
    return { head: rest, events: closed.events, records: closed.records };
  }

  private append(
    commit: Pick<CommitDocument, 'head' | 'events' | 'records' | 'effectsDueAt' | 'ts0'> & {
      commands: StoredCommand[];
      effects: Effect[];
    },
  ): CommitDocument {
    const { tenantId, sessionId, c } = commit.head;
    const commitIds = commit.commands.map(({ commitId }) => commitId);
    const body = { _id: commitKey(sessionId, c), v: 1 as const, tenantId, sessionId, c, commitIds, ...commit };
    const document: CommitDocument = { ...body, hash: hashOf(this.tip.hash, body) };
    this.tip = tipOf(document);
    return document;
  }
}

const CUT_OFF = { done: true, done_reason: 'canceled', task_result: null };

/** A fork whose last commit is not stored: nobody may see it. */
export function isHalfMade(head: Head): boolean {
  return head.c > 0 && head.createdTs === 0;
}
