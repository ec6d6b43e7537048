import type { sessionsPb } from '@margay/contracts';
import { isMargayError } from '@margay/errors';
import type { Logger } from '@margay/platform';
import type { CommitReader, ReadFrom } from './commit-reader';
import type { Cursor } from './cursor';
import { sseFrames, type FeedCommit, type FeedDelta, type Frame } from './feed-commit';
import { HeldCommits } from './held-commits';
import type { FeedListener, SessionFeed } from './session-feed';
import type { StreamSettings } from './settings';
import type { SseSocket } from './sse-socket';

export interface SessionStreamOptions {
  feed: SessionFeed;
  reader: CommitReader;
  socket: SseSocket;
  cursor: Cursor;
  withIds: boolean;
  withDeltas: boolean;
  settings: StreamSettings;
  logger: Logger;
}

type Phase = 'replaying' | 'live' | 'closed';

const REPLAY_CHUNK_CHARS = 64 * 1024;
const RECENT_COMMITS = 50;
const STREAM_END = 'data: {"type":"stream_end"}\n\n';
const everything = () => true;

/** One client's stream: replay, state, live events, state and end. See docs/protocol.md §8. */
export class SessionStream implements FeedListener {
  readonly reader: CommitReader;
  private phase: Phase = 'replaying';
  /** Number of the last commit delivered. */
  private c = 0;
  private lastTs: number | undefined;
  /** Last commit delivered after which no run was active. */
  private idleC = 0;
  private isOpen = false;
  private isAnnounced = false;
  private readonly held = new HeldCommits();
  /** The last commits of the replay. */
  private recent: sessionsPb.Commit[] = [];
  private readonly closing = new AbortController();

  constructor(private readonly options: SessionStreamOptions) {
    this.reader = options.reader;
  }

  get isLive(): boolean {
    return this.phase === 'live';
  }

  /** Resolves when the stream is live or over; rejects only while nothing has been sent. */
  async start(): Promise<void> {
    const { feed, cursor, socket } = this.options;
    feed.add(this);
    try {
      await feed.ready;
      await this.catchUp(cursor.from, cursor.includes);
      await this.settle();
    } catch (error) {
      if (this.phase === 'closed') return;
      if (!this.isOpen) throw error;
      this.options.logger.warn(
        { sessionId: feed.sessionId, err: error },
        'stream cut: the session log could not be read',
      );
      socket.cut('store');
    }
  }

  /** The socket is closed, from whichever side. */
  closed(): void {
    this.phase = 'closed';
    this.options.feed.delete(this);
    this.held.clear();
    this.closing.abort();
  }

  /** Ends the response early and cleanly; the client comes back with its cursor. */
  leave(): void {
    this.options.socket.end();
  }

  onCommit(commit: FeedCommit): void {
    if (commit.c <= this.c || this.phase === 'closed') return;
    if (this.phase === 'replaying') this.held.push(commit);
    else if (commit.after <= this.c) this.deliver(commit);
    else void this.rejoin();
  }

  onDelta(delta: FeedDelta): void {
    const isDue = this.phase === 'live' && this.isAnnounced && delta.delta.c <= this.c;
    if (!isDue || !this.options.withDeltas || this.lastTs === undefined) return;
    this.options.socket.write(delta.bytes(this.lastTs));
  }

  onIdle(state: sessionsPb.SessionState): void {
    if (this.phase === 'live' && this.isAnnounced && state.c === this.c) this.finish(state);
  }

  onRefused(): void {
    this.options.socket.cut('access');
  }

  private deliver(commit: FeedCommit): void {
    const { socket, withIds } = this.options;
    this.c = commit.c;
    this.lastTs = commit.lastTs ?? this.lastTs;
    if (commit.isRunning === false) this.idleC = commit.c;
    if (commit.frames.length > 0) socket.write(commit.bytes(withIds));
  }

  /** Commits were missed after all: reads them, then looks whether the session is idle meanwhile. */
  private async rejoin(): Promise<void> {
    try {
      await this.catchUp({ $case: 'afterCommit', value: this.c }, everything);
      await this.settle();
    } catch (error) {
      if (this.isClosed()) return;
      this.options.logger.warn({ err: error }, 'stream cut: the session log could not be read');
      this.options.socket.cut('store');
    }
  }

  /** Replays up to a head, then what arrived meanwhile, until nothing lies between this stream and the live end. */
  private async catchUp(from: ReadFrom, includes: (frame: Frame) => boolean): Promise<void> {
    const { feed } = this.options;
    this.phase = 'replaying';
    let next = from;
    let filter = includes;
    for (;;) {
      this.held.clear();
      await this.replay(next, filter);
      const isGapless = await this.releaseHeld();
      if (this.isClosed()) return;
      if (isGapless && this.c >= (feed.position ?? 0)) break;
      next = { $case: 'afterCommit', value: this.c };
      filter = everything;
    }
    this.phase = 'live';
    feed.reached(this.c, this, this.recent);
    this.recent = [];
  }

  private async replay(from: ReadFrom, includes: (frame: Frame) => boolean): Promise<void> {
    let text = '';
    for await (const { commits, state } of this.reader.read(from, this.closing.signal)) {
      this.open();
      for (const { c, frames } of commits) {
        if (c <= this.c) continue;
        this.c = c;
        this.lastTs = frames.at(-1)?.ts ?? this.lastTs;
        this.recent.push({ c, frames });
        text += sseFrames(includes === everything ? frames : frames.filter(includes), this.options.withIds);
        if (text.length < REPLAY_CHUNK_CHARS) continue;
        await this.send(text);
        text = '';
      }
      if (this.recent.length > RECENT_COMMITS) this.recent = this.recent.slice(-RECENT_COMMITS);
      if (state) this.c = Math.max(this.c, state.c);
    }
    await this.send(text);
  }

  private async send(text: string): Promise<void> {
    const { socket } = this.options;
    if (text !== '') socket.write(Buffer.from(text));
    await socket.ready();
    this.closing.signal.throwIfAborted();
  }

  private open(): void {
    if (this.isOpen) return;
    this.isOpen = true;
    this.options.socket.open();
  }

  /** False: something between the replay and the held commits is missing. */
  private async releaseHeld(): Promise<boolean> {
    for (;;) {
      const commit = this.held.shift();
      if (!commit) return !this.held.isIncomplete;
      if (commit.c <= this.c) continue;
      if (commit.after > this.c) return false;
      this.deliver(commit);
      await this.options.socket.ready();
    }
  }

  /** Tells the state of the confirmed end; where no run is active and all is delivered, this is the end. */
  private async settle(): Promise<void> {
    for (;;) {
      const state = await this.confirmedState();
      if (!state || this.isClosed()) return;
      if (state.running) {
        // Unless an end was delivered while the question was on its way.
        if (this.idleC > state.c) continue;
        this.announce(state);
        return;
      }
      if (state.c > this.c) await this.catchUp({ $case: 'afterCommit', value: this.c }, everything);
      else if (state.c === this.c) {
        this.announce(state);
        this.finish(state);
        return;
      }
      if (this.isClosed()) return;
    }
  }

  private async confirmedState(): Promise<sessionsPb.SessionState | undefined> {
    const { retryFirstMs, retryMaxMs } = this.options.settings;
    for (let delayMs = retryFirstMs; ; delayMs = Math.min(delayMs * 2, retryMaxMs)) {
      try {
        return await this.reader.state(this.closing.signal);
      } catch (error) {
        if (this.isClosed()) return undefined;
        if (!isMargayError(error) || !error.retryable) throw error;
        await new Promise((resolve) => setTimeout(resolve, delayMs * (0.5 + Math.random())));
      }
    }
  }

  private announce(state: sessionsPb.SessionState): void {
    if (this.isAnnounced) return;
    this.isAnnounced = true;
    this.options.socket.write(Buffer.from(stateFrame(state)));
  }

  private finish(state: sessionsPb.SessionState): void {
    this.options.socket.write(Buffer.from(stateFrame(state) + STREAM_END));
    this.options.socket.end();
  }

  private isClosed(): boolean {
    return this.phase === 'closed';
  }
}

/** Flat, without `ts` and `payload`: it is never stored. */
function stateFrame({ json }: sessionsPb.SessionState): string {
  return `data: {"type":"session_state",${json.trimStart().slice(1)}\n\n`;
}
