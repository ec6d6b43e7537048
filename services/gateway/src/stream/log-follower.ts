import type { sessionsPb } from '@margay/contracts';
import { isMargayError } from '@margay/errors';
import type { CommitReader, ReadFrom } from './commit-reader';
import type { Cursor } from './cursor';
import type { FeedCommit, FeedDelta, Frame } from './feed-commit';
import { HeldCommits } from './held-commits';
import type { FeedListener, SessionFeed } from './session-feed';
import type { StreamSettings } from './settings';

/** Where a follower puts what it reads. */
export interface FollowerSink {
  /** The log can be read by whoever asks: what follows is sent. */
  opened(): void;
  /** Frames of a replay; resolves when the client has taken them, or is gone. */
  replayed(frames: readonly Frame[]): Promise<void>;
  /** Resolves when the client has taken what was sent, or is gone. */
  ready(): Promise<void>;
  committed(commit: FeedCommit): void;
  /** A fragment, to be stamped with the time of the last stored event delivered. */
  delta(delta: FeedDelta, ts: number): void;
  /** Nothing lies between this follower and the live end, for the first time or again. */
  caughtUp(): Promise<void>;
  /** Beside the log something about the state after the last commit has changed. */
  stated(stateJson: string): void;
  /** No run is active at the log's confirmed end, and all up to it was delivered. */
  idle(state: sessionsPb.SessionState): void;
  refused(): void;
  /** The log could not be read on. */
  failed(error: unknown): void;
}

export interface LogFollowerOptions {
  feed: SessionFeed;
  reader: CommitReader;
  sink: FollowerSink;
  settings: StreamSettings;
}

type Phase = 'replaying' | 'live' | 'closed';

const REPLAY_CHUNK_CHARS = 64 * 1024;
const RECENT_COMMITS = 50;
const everything = () => true;

/** Follows one session for one client: replay, then live, each event once and in order. See docs/protocol.md §8. */
export class LogFollower implements FeedListener {
  readonly reader: CommitReader;
  /** Number of the last commit delivered. */
  c = 0;
  private phase: Phase = 'replaying';
  private lastTs: number | undefined;
  private held: HeldCommits | undefined;
  /** The last commits of the replay. */
  private recent: sessionsPb.Commit[] = [];
  private readonly closing = new AbortController();

  constructor(private readonly options: LogFollowerOptions) {
    this.reader = options.reader;
  }

  get isLive(): boolean {
    return this.phase === 'live';
  }

  get isClosed(): boolean {
    return this.phase === 'closed';
  }

  /** Resolves when it is live and its sink knows, or when it is closed; rejects if the log cannot be read. */
  async start({ from, includes }: Cursor): Promise<void> {
    const { feed, sink } = this.options;
    feed.add(this);
    try {
      await feed.ready;
      await this.catchUp(from, includes);
      await sink.caughtUp();
    } catch (error) {
      if (!this.isClosed) throw error;
    }
  }

  close(): void {
    this.phase = 'closed';
    this.options.feed.delete(this);
    this.held = undefined;
    this.closing.abort();
  }

  /** Reads whatever was stored behind its position. */
  readOn(): Promise<void> {
    return this.catchUp({ $case: 'afterCommit', value: this.c }, everything);
  }

  /** State of the log's confirmed end, asked for until there is an answer; undefined once closed. */
  async confirmedState(): Promise<sessionsPb.SessionState | undefined> {
    const { retryFirstMs, retryMaxMs } = this.options.settings;
    for (let delayMs = retryFirstMs; ; delayMs = Math.min(delayMs * 2, retryMaxMs)) {
      try {
        return await this.reader.state(this.closing.signal);
      } catch (error) {
        if (this.isClosed) return undefined;
        if (!isMargayError(error) || !error.retryable) throw error;
        await new Promise((resolve) => setTimeout(resolve, delayMs * (0.5 + Math.random())));
      }
    }
  }

  onCommit(commit: FeedCommit): void {
    if (commit.c <= this.c || this.isClosed) return;
    if (this.phase === 'replaying') this.held?.push(commit);
    else if (commit.after <= this.c) this.deliver(commit);
    else void this.rejoin();
  }

  onDelta(delta: FeedDelta): void {
    if (this.isLive && delta.delta.c <= this.c && this.lastTs !== undefined)
      this.options.sink.delta(delta, this.lastTs);
  }

  onState(c: number, stateJson: string): void {
    if (this.isLive && c === this.c) this.options.sink.stated(stateJson);
  }

  onIdle(state: sessionsPb.SessionState): void {
    if (this.isLive && state.c === this.c) this.options.sink.idle(state);
  }

  onRefused(): void {
    this.options.sink.refused();
  }

  private deliver(commit: FeedCommit): void {
    this.c = commit.c;
    this.lastTs = commit.lastTs ?? this.lastTs;
    this.options.sink.committed(commit);
  }

  /** Commits were missed after all. */
  private async rejoin(): Promise<void> {
    try {
      await this.readOn();
      await this.options.sink.caughtUp();
    } catch (error) {
      if (!this.isClosed) this.options.sink.failed(error);
    }
  }

  /** Replays up to a head, then what arrived meanwhile, until nothing lies between this follower and the live end. */
  private async catchUp(from: ReadFrom, includes: (frame: Frame) => boolean): Promise<void> {
    const { feed } = this.options;
    if (this.isClosed) return;
    this.phase = 'replaying';
    let next = from;
    let filter = includes;
    for (;;) {
      this.held = new HeldCommits();
      await this.replay(next, filter);
      const isGapless = await this.releaseHeld(this.held);
      if (this.isClosed) return;
      if (isGapless && this.c >= (feed.position ?? 0)) break;
      next = { $case: 'afterCommit', value: this.c };
      filter = everything;
    }
    this.phase = 'live';
    this.held = undefined;
    feed.reached(this.c, this, this.recent);
    this.recent = [];
  }

  private async replay(from: ReadFrom, includes: (frame: Frame) => boolean): Promise<void> {
    let chunk: Frame[] = [];
    let chars = 0;
    for await (const { commits, state } of this.reader.read(from, this.closing.signal)) {
      this.options.sink.opened();
      for (const { c, frames } of commits) {
        if (c <= this.c) continue;
        this.c = c;
        this.lastTs = frames.at(-1)?.ts ?? this.lastTs;
        this.recent.push({ c, frames });
        for (const frame of frames) {
          if (!includes(frame)) continue;
          chunk.push(frame);
          chars += frame.json.length;
        }
        if (chars < REPLAY_CHUNK_CHARS) continue;
        await this.send(chunk);
        chunk = [];
        chars = 0;
      }
      if (this.recent.length > RECENT_COMMITS) this.recent = this.recent.slice(-RECENT_COMMITS);
      if (state) this.c = Math.max(this.c, state.c);
    }
    await this.send(chunk);
  }

  private async send(frames: readonly Frame[]): Promise<void> {
    const { sink } = this.options;
    await (frames.length > 0 ? sink.replayed(frames) : sink.ready());
    this.closing.signal.throwIfAborted();
  }

  /** False: something between the replay and the held commits is missing. */
  private async releaseHeld(held: HeldCommits): Promise<boolean> {
    for (;;) {
      const commit = held.shift();
      if (!commit) return !held.isIncomplete;
      if (commit.c <= this.c) continue;
      if (commit.after > this.c) return false;
      this.deliver(commit);
      await this.options.sink.ready();
    }
  }
}
