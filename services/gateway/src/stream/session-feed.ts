import { setImmediate as turn } from 'node:timers/promises';
import { LiveCommit, LiveDelta, subjects, type sessionsPb } from '@margay/contracts';
import { isMargayError } from '@margay/errors';
import { ATTRIBUTE, withSyncSpan, type Logger } from '@margay/platform';
import type { CommitReader } from './commit-reader';
import { DeltaFilter } from './delta-filter';
import { FeedCommit, FeedDelta, type FeedState, type Frame } from './feed-commit';
import type { LiveBus } from './live-bus';
import type { StreamSettings } from './settings';

/** One client of a session. */
export interface FeedListener {
  readonly reader: CommitReader;
  /** Whether it has the whole log up to the feed's position. */
  readonly isLive: boolean;
  onCommit(commit: FeedCommit): void;
  onDelta(delta: FeedDelta): void;
  /** Beside the log something about the state after this commit has changed, e.g. the run's place in the queue. */
  onState(c: number, stateJson: string): void;
  /** No run is active at the log's confirmed end. */
  onIdle(state: sessionsPb.SessionState): void;
  /** Its reader may not read this session any more. */
  onRefused(): void;
}

export interface SessionFeedOptions {
  tenantId: string;
  sessionId: string;
  bus: LiveBus;
  settings: StreamSettings;
  logger: Logger;
  onDelivered?: (commit: FeedCommit) => void;
}

const AHEAD_MAX = 1_000;
const HELD_DELTAS_MAX = 200;
/** So much is handed on without a pause. */
const BURST_CHARS = 64 * 1024;

/**
 * The live end of one session, shared by all its listeners on this gateway: puts commits in order by their number, closes
 * gaps from the store, and finds out when no run is active. See docs/protocol.md §8.
 */
export class SessionFeed {
  /** Number of the last commit handed to the listeners; undefined until the first of them has read the log. */
  position: number | undefined;
  lastHeardMs = 0;
  /** Resolves once the subscriptions are in force. */
  readonly ready: Promise<void>;
  private readonly listeners = new Set<FeedListener>();
  private readonly ahead = new Map<number, FeedCommit>();
  private readonly filter = new DeltaFilter();
  private readonly unsubscribe: (() => void)[];
  private readonly closing = new AbortController();
  private heldDeltas: FeedDelta[] = [];
  /** Highest number that is known to exist. */
  private knownC = 0;
  /** Highest number that only the store will show, so there is nothing to wait for. */
  private storedC = 0;
  private gapTimer: NodeJS.Timeout | undefined;
  private isReading = false;
  private isConfirming = false;
  private confirmAgain = false;

  constructor(private readonly options: SessionFeedOptions) {
    const { tenantId, sessionId, bus } = options;
    this.unsubscribe = [
      bus.subscribe(subjects.sessionEvents(tenantId, sessionId), (data) =>
        withSyncSpan('deliver', { [ATTRIBUTE.conversation]: sessionId }, () =>
          this.hear(data, (json) => this.onEvent(json)),
        ),
      ),
      bus.subscribe(subjects.sessionDeltas(tenantId, sessionId), (data) =>
        this.hear(data, (json) => this.onDelta(json)),
      ),
    ];
    this.ready = bus.flush();
  }

  get tenantId(): string {
    return this.options.tenantId;
  }

  get sessionId(): string {
    return this.options.sessionId;
  }

  get size(): number {
    return this.listeners.size;
  }

  add(listener: FeedListener): void {
    this.listeners.add(listener);
  }

  delete(listener: FeedListener): void {
    this.listeners.delete(listener);
  }

  close(): void {
    this.closing.abort();
    clearTimeout(this.gapTimer);
    for (const unsubscribe of this.unsubscribe) unsubscribe();
  }

  /**
   * This listener has read the log up to this commit and is live from here on. `recent` are the last commits it read:
   * they tell which steps may still grow.
   */
  reached(c: number, reader: FeedListener, recent: readonly sessionsPb.Commit[]): void {
    const others = [...this.listeners].some((listener) => listener !== reader && listener.isLive);
    if (this.position !== undefined && (others || c <= this.position)) {
      this.learn(c);
      return;
    }
    // Nobody else depends on what lies before.
    this.position = c;
    this.filter.restart(recent[0]?.c ?? c);
    for (const { frames } of recent) this.filter.observe(frames);
    this.dispatchAhead();
    if (c < this.storedC) this.learn(this.storedC);
    else this.watchGap();
  }

  /** A commit of this number is stored; what is missing up to it is read at once. */
  learn(c: number): void {
    this.knownC = Math.max(this.knownC, c);
    this.storedC = Math.max(this.storedC, c);
    if (this.position !== undefined && this.position < this.knownC) void this.readMissing();
  }

  private commit(after: number, c: number, frames: readonly Frame[], state: FeedState | undefined): FeedCommit {
    return new FeedCommit({ sessionId: this.sessionId, after, c, frames, state });
  }

  private hear(data: Uint8Array, handle: (json: unknown) => void): void {
    this.lastHeardMs = performance.now();
    handle(JSON.parse(Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString('utf8')));
  }

  private onEvent(json: unknown): void {
    const { c, frames, state, restated } = LiveCommit.parse(json);
    if (this.position !== undefined && c <= this.position) {
      if (restated) for (const listener of this.listeners) listener.onState(c, state);
      return;
    }
    if (!frames) {
      this.learn(c);
      return;
    }
    const { running } = JSON.parse(state) as { running: boolean };
    this.knownC = Math.max(this.knownC, c);
    if (this.ahead.size >= AHEAD_MAX) this.ahead.clear();
    const announced = frames.map(([seq, ts, text]) => ({ seq, ts, json: text }));
    this.ahead.set(c, this.commit(c - 1, c, announced, { running, json: state }));
    if (this.position === undefined) this.offerAhead(c);
    else this.dispatchAhead();
    this.watchGap();
  }

  /** Before any replay has ended there is no order to keep: listeners hold what they are given. */
  private offerAhead(c: number): void {
    const commit = this.ahead.get(c);
    if (commit) for (const listener of this.listeners) listener.onCommit(commit);
  }

  private onDelta(json: unknown): void {
    const delta = new FeedDelta(LiveDelta.parse(json), this.sessionId);
    if (this.position === undefined) return;
    if (delta.delta.c <= this.position && this.heldDeltas.length === 0) {
      this.deliver(delta);
      return;
    }
    if (this.heldDeltas.length >= HELD_DELTAS_MAX) this.heldDeltas.shift();
    this.heldDeltas.push(delta);
    this.knownC = Math.max(this.knownC, delta.delta.c);
    this.watchGap();
  }

  private deliver(delta: FeedDelta): void {
    if (!this.filter.admits(delta.delta)) return;
    for (const listener of this.listeners) listener.onDelta(delta);
  }

  private dispatchAhead(): void {
    for (;;) {
      const next = this.ahead.get((this.position ?? 0) + 1);
      if (!next) break;
      this.dispatch(next);
    }
    if (this.ahead.size > 0) for (const c of this.ahead.keys()) if (c <= (this.position ?? 0)) this.ahead.delete(c);
  }

  private dispatch(commit: FeedCommit): void {
    this.position = commit.c;
    this.ahead.delete(commit.c);
    this.filter.observe(commit.frames);
    for (const listener of this.listeners) listener.onCommit(commit);
    this.options.onDelivered?.(commit);
    if (this.heldDeltas.length > 0) this.releaseDeltas();
    if (commit.state?.running === false) void this.confirmIdle();
  }

  private releaseDeltas(): void {
    const held = this.heldDeltas;
    this.heldDeltas = [];
    for (const delta of held) {
      if (delta.delta.c <= (this.position ?? 0)) this.deliver(delta);
      else this.heldDeltas.push(delta);
    }
  }

  private watchGap(): void {
    const isGap = this.position !== undefined && this.position < this.knownC;
    if (!isGap || this.gapTimer || this.isReading) return;
    this.gapTimer = setTimeout(() => void this.readMissing(), this.options.settings.gapMs);
  }

  /** Reads what is missing from the store. Fragments that follow a commit not even there are given up. */
  private async readMissing(): Promise<void> {
    clearTimeout(this.gapTimer);
    this.gapTimer = undefined;
    if (this.isReading) return;
    this.isReading = true;
    const wantedC = this.knownC;
    let readC: number;
    do {
      readC = this.storedC;
      await this.retrying((reader) => this.readInto(reader));
    } while (this.storedC > readC && this.storedC > (this.position ?? 0));
    this.isReading = false;
    this.releaseDeltas();
    this.heldDeltas = [];
    // What even the store does not show may never have been; what became known meanwhile is waited for.
    if (this.knownC === wantedC) this.knownC = Math.max(this.position ?? 0, ...this.ahead.keys());
    this.watchGap();
  }

  private async readInto(reader: CommitReader): Promise<void> {
    const from = { $case: 'afterCommit' as const, value: this.position ?? 0 };
    let chars = 0;
    for await (const { commits, state } of reader.read(from, this.closing.signal)) {
      for (const { c, frames } of commits) {
        if (c <= (this.position ?? 0)) continue;
        const commit = this.commit(this.position ?? 0, c, frames, state?.c === c ? state : undefined);
        this.dispatch(commit);
        chars += commit.chars;
        if (chars < BURST_CHARS) continue;
        chars = 0;
        // Sockets get rid of what they hold only between turns, and who holds too much is cut.
        await turn();
      }
      if (state && state.c > (this.position ?? 0)) {
        this.dispatch(this.commit(this.position ?? 0, state.c, [], state));
      } else if (state?.running === false && state.c === this.position) void this.confirmIdle();
    }
    this.dispatchAhead();
  }

  /** Asks for the log's confirmed end, and tells the listeners if no run is active there. */
  private async confirmIdle(): Promise<void> {
    this.confirmAgain = true;
    if (this.isConfirming) return;
    this.isConfirming = true;
    while (this.confirmAgain && this.listeners.size > 0) {
      this.confirmAgain = false;
      const state = await this.retrying((reader) => reader.state(this.closing.signal));
      if (!state) break;
      if (state.c > (this.position ?? 0)) this.learn(state.c);
      else if (!state.running) for (const listener of [...this.listeners]) listener.onIdle(state);
    }
    this.isConfirming = false;
  }

  /** Repeats while there are listeners; one that may not read any more is let go, and the next one's reader is used. */
  private async retrying<T>(work: (reader: CommitReader) => Promise<T>): Promise<T | undefined> {
    const { retryFirstMs, retryMaxMs } = this.options.settings;
    let delayMs = retryFirstMs;
    for (;;) {
      const [listener] = this.listeners;
      if (!listener || this.closing.signal.aborted) return undefined;
      try {
        return await work(listener.reader);
      } catch (error) {
        if (this.closing.signal.aborted) return undefined;
        if (isMargayError(error) && isRefusal(error.code)) {
          listener.onRefused();
          continue;
        }
        this.options.logger.warn(
          { sessionId: this.sessionId, err: error },
          'session log could not be read; trying again',
        );
        await new Promise((resolve) => setTimeout(resolve, delayMs * (0.5 + Math.random())));
        delayMs = Math.min(delayMs * 2, retryMaxMs);
      }
    }
  }
}

function isRefusal(code: string): boolean {
  return code === 'NOT_FOUND' || code === 'PERMISSION_DENIED';
}
