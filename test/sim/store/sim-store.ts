import type { CommitDocument, Head, RunRowState } from '@margay/log';
import type { World } from '../world/world';

/** For how long no majority holds a commit in the middle of which the primary fails. */
const STRUCK_MS = 80;
/** No plain read lags behind by more, an outage included. */
const STALE_MAX_MS = 8_000;

/** A write in the order of the primary's log. It is safe once a majority holds it, and every earlier one. */
interface Write {
  isLost: boolean;
  undo: () => void;
  onAcknowledged: () => void;
}

export interface StoredEntry {
  document: CommitDocument;
  /** As it was inserted; a difference at the end means that somebody changed a document in memory. */
  text: string;
  insertedAtMs: number;
  acknowledgedAtMs: number;
}

export interface SessionRow {
  c: number;
  head: Head;
}

export interface RunRow {
  c: number;
  sessionId: string;
  runId: string;
  state: RunRowState;
  epoch: number;
  owner: string | null;
  /** When a question of the run times out; microseconds of wall clocks. */
  dueTs: number | null;
}

export interface RunnerRow {
  /** Raised with each heartbeat. */
  beat: number;
  /** Raised with each attachment. */
  generation: number;
  isLost: boolean;
  /** `<runId> <epoch>` of the runs the last heartbeat listed. */
  listed: string[];
}

/** A call whose effect is outside of sandboxes. */
export interface ToolCallRow {
  state: 'sent' | 'ok' | 'unknown';
  /** Instance of the executor that sent it. */
  process: string;
  beat: number;
  text: string;
}

/**
 * A replicated store with one primary: writes are acknowledged by a majority in order; a fail-over forgets a suffix of
 * those that were not, cuts all connections, and leaves plain reads stale for a while.
 */
export class SimStore {
  isUp = true;
  readonly entries = new Map<string, StoredEntry>();
  readonly sessions = new Map<string, SessionRow>();
  readonly runs = new Map<string, RunRow>();
  readonly runners = new Map<string, RunnerRow>();
  readonly toolCalls = new Map<string, ToolCallRow>();
  /** Commits whose effects are not known to be applied, with the time from which that is the janitor's. */
  readonly due = new Map<string, number>();
  /** Per session its commits by number, the first at 0. */
  private readonly lanes = new Map<string, (StoredEntry | undefined)[]>();
  private readonly byCommitId = new Map<string, StoredEntry>();
  private pending: Write[] = [];
  private acknowledgeAtMs = 0;
  /** Counts primaries. */
  private term = 1;
  /** How likely it is that the primary fails in the middle of the next insert. */
  private strikeChance = 0;
  private stale: { asOfMs: number; untilMs: number } | undefined;

  constructor(private readonly world: World) {}

  insert(document: CommitDocument, reply: (outcome: 'inserted' | 'exists') => void): void {
    const { entries, byCommitId, due, world } = this;
    const isTaken = document.commitIds.some((id) => byCommitId.has(`${document.sessionId} ${id}`));
    if (entries.has(document._id) || (isTaken && world.has('uniqueCommitIds'))) return reply('exists');
    const entry: StoredEntry = {
      document,
      text: JSON.stringify(document),
      insertedAtMs: world.time.nowMs,
      acknowledgedAtMs: Infinity,
    };
    const lane = this.laneOf(document.sessionId);
    entries.set(document._id, entry);
    if (!world.has('commitsNeverChange')) this.tamper(lane[document.c - 3]);
    lane[document.c - 1] = entry;
    for (const id of document.commitIds) byCommitId.set(`${document.sessionId} ${id}`, entry);
    if (document.effectsDueAt !== null) due.set(document._id, document.effectsDueAt);
    const undo = (): void => {
      world.count('commit rolled back');
      entries.delete(document._id);
      if (lane.length === document.c) lane.pop();
      else lane[document.c - 1] = undefined;
      due.delete(document._id);
      for (const id of document.commitIds) byCommitId.delete(`${document.sessionId} ${id}`);
    };
    const isStruck = this.strikeChance > 0 && world.random.chance(this.strikeChance);
    const onAcknowledged = (isConnected: boolean): void => {
      entry.acknowledgedAtMs = world.time.nowMs;
      if (isConnected) reply('inserted');
    };
    this.write(undo, onAcknowledged, isStruck ? STRUCK_MS : 0);
    if (!isStruck) return;
    this.strikeChance = 0;
    world.time.at(world.random.between(0, STRUCK_MS), () => this.failOver());
  }

  entryOf(sessionId: string, c: number): StoredEntry | undefined {
    return this.laneOf(sessionId)[c - 1];
  }

  /** A session's commits in order, as the primary has them, up to the first that is missing. */
  documentsOf(sessionId: string): CommitDocument[] {
    const documents: CommitDocument[] = [];
    for (const entry of this.laneOf(sessionId)) {
      if (!entry) break;
      documents.push(entry.document);
    }
    return documents;
  }

  /** State after the last commit that the primary has. */
  headOf(sessionId: string): Head | undefined {
    return this.laneOf(sessionId).at(-1)?.document.head;
  }

  /** Somebody else has access to the store. */
  private tamper(entry: StoredEntry | undefined): void {
    if (!entry || !this.world.random.chance(0.05)) return;
    const [first, ...others] = entry.document.events;
    if (first) entry.document = { ...entry.document, events: [{ ...first, frame: `${first.frame} ` }, ...others] };
  }

  private laneOf(sessionId: string): (StoredEntry | undefined)[] {
    const known = this.lanes.get(sessionId);
    if (known) return known;
    const lane: (StoredEntry | undefined)[] = [];
    this.lanes.set(sessionId, lane);
    return lane;
  }

  /** Changes one row atomically; `change` returns undefined to leave it as it is. */
  updateRow<T>(
    table: Map<string, T>,
    id: string,
    change: (row: T | undefined) => T | undefined,
    reply: (row: T) => void,
  ): void {
    const before = table.get(id);
    const after = change(before);
    if (after === undefined) return reply(before as T);
    table.set(id, after);
    const undo = (): void => {
      if (before === undefined) table.delete(id);
      else table.set(id, before);
    };
    this.write(undo, (isConnected) => {
      if (isConnected) reply(after);
    });
  }

  clearDue(id: string, reply: () => void): void {
    const before = this.due.get(id);
    if (before === undefined) return reply();
    this.due.delete(id);
    this.write(
      () => void this.due.set(id, before),
      (isConnected) => {
        if (isConnected) reply();
      },
    );
  }

  /** A majority has held it for so long that no read, however far behind, fails to show it. */
  isOld(id: string): boolean {
    return (this.entries.get(id)?.acknowledgedAtMs ?? Infinity) < this.world.time.nowMs - STALE_MAX_MS;
  }

  /** What a majority holds, as plain reads show it: behind the truth for a while after a fail-over. */
  plain(entry: StoredEntry | undefined): CommitDocument | undefined {
    if (!entry) return undefined;
    const { stale, world } = this;
    if (entry.acknowledgedAtMs === Infinity && world.has('majorityReads')) return undefined;
    if (stale && world.time.nowMs < stale.untilMs && entry.acknowledgedAtMs > stale.asOfMs) return undefined;
    return entry.document;
  }

  plainByCommitId(sessionId: string, commitId: string): CommitDocument | undefined {
    return this.plain(this.byCommitId.get(`${sessionId} ${commitId}`));
  }

  linearizableByCommitId(
    sessionId: string,
    commitId: string,
    reply: (document: CommitDocument | undefined) => void,
  ): void {
    this.linearizable(() => this.byCommitId.get(`${sessionId} ${commitId}`), reply);
  }

  /** Sees every insert acknowledged before; waits for a majority, and gives up where the document has none yet. */
  linearizable(find: () => StoredEntry | undefined, reply: (document: CommitDocument | undefined) => void): void {
    const { world } = this;
    const entry = find();
    const { term } = this;
    world.time.at(world.random.between(0.5, 2), () => {
      if (!this.isUp || this.term !== term) return;
      if (!entry || entry.acknowledgedAtMs !== Infinity) reply(entry?.document);
    });
  }

  /** Lets the primary fail while it holds a commit that no majority has yet. */
  failOverDuringInsert(chance: number): void {
    this.strikeChance = chance;
  }

  /** Plain reads show an old state for a while, as those of a member that lags behind do. */
  fallBehind(): void {
    const { nowMs } = this.world.time;
    const { random } = this.world;
    this.stale = { asOfMs: nowMs - random.between(0, 200), untilMs: nowMs + random.between(100, 3_000) };
  }

  failOver(): void {
    if (!this.isUp) return;
    const { world, pending } = this;
    world.count('fail-over');
    this.isUp = false;
    this.strikeChance = 0;
    const lost = pending.splice(world.random.integer(0, pending.length));
    world.trace('store', `fails over, forgets ${lost.length} of ${lost.length + pending.length}`);
    for (const write of lost.reverse()) {
      write.isLost = true;
      write.undo();
    }
    const asOfMs = world.time.nowMs - world.random.between(0, world.isStress ? 1_500 : 300);
    world.time.at(world.random.between(200, 2_500), () => this.comeUp(asOfMs));
  }

  private comeUp(asOfMs: number): void {
    const { world } = this;
    const kept = [...this.pending];
    const term = ++this.term;
    this.isUp = true;
    this.stale = { asOfMs, untilMs: world.time.nowMs + world.random.between(1, world.isStress ? 3_000 : 1_500) };
    const delayMs = world.random.between(1, 20);
    this.acknowledgeAtMs = world.time.nowMs + delayMs;
    world.time.at(delayMs, () => {
      if (this.isUp && this.term === term) for (const write of kept) this.acknowledge(write);
    });
  }

  private write(undo: () => void, onAcknowledged: (isConnected: boolean) => void, atLeastMs = 0): void {
    const { world, term } = this;
    const write: Write = { isLost: false, undo, onAcknowledged: () => onAcknowledged(this.term === term) };
    this.pending.push(write);
    const isSlow = world.areFaultsOn && world.random.chance(world.isStress ? 0.15 : 0.05);
    const delayMs = atLeastMs + (isSlow ? world.random.between(20, 900) : world.random.between(0.3, 1.5));
    this.acknowledgeAtMs = Math.max(world.time.nowMs + delayMs, this.acknowledgeAtMs);
    world.time.at(this.acknowledgeAtMs - world.time.nowMs, () => {
      if (this.isUp && this.term === term) this.acknowledge(write);
    });
  }

  private acknowledge(write: Write): void {
    if (write.isLost) return;
    this.pending = this.pending.filter((other) => other !== write);
    write.onAcknowledged();
  }
}
