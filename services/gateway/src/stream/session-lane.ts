import type { sessionsPb } from '@margay/contracts';
import { isMargayError } from '@margay/errors';
import type { Logger } from '@margay/platform';
import type { CommitReader } from './commit-reader';
import { afterSeq, type Cursor } from './cursor';
import { sseFrames, type FeedCommit, type FeedDelta, type Frame } from './feed-commit';
import { LogFollower, type FollowerSink } from './log-follower';
import type { SessionFeed } from './session-feed';
import type { StreamSettings } from './settings';
import type { SharedSocket } from './shared-socket';
import { refusalFrame, stateFrame } from './control-frames';

export interface SessionLaneOptions {
  feed: SessionFeed;
  reader: CommitReader;
  socket: SharedSocket;
  /** Last event the client has; undefined: it wants nothing that is stored already. */
  seq: number | undefined;
  withDeltas: boolean;
  settings: StreamSettings;
  logger: Logger;
  /** It will tell nothing more. */
  onDone: () => void;
}

/** One session on a stream of many: its frames carry its id, its state is told at first and when it changes. */
export class SessionLane implements FollowerSink {
  private readonly follower: LogFollower;
  private isAnnounced = false;
  /** The state that the client knows. */
  private told = '';

  constructor(private readonly options: SessionLaneOptions) {
    const { feed, reader, settings } = options;
    this.follower = new LogFollower({ feed, reader, settings, sink: this });
  }

  /** Resolves when it is live or over; never rejects. */
  async start(): Promise<void> {
    const { retryFirstMs, retryMaxMs } = this.options.settings;
    for (let delayMs = retryFirstMs; !this.follower.isClosed; delayMs = Math.min(delayMs * 2, retryMaxMs)) {
      try {
        const cursor = await this.cursor();
        if (cursor) await this.follower.start(cursor);
        return;
      } catch (error) {
        if (!isMargayError(error) || !error.retryable) return this.failed(error);
        await new Promise((resolve) => setTimeout(resolve, delayMs * (0.5 + Math.random())));
      }
    }
  }

  close(): void {
    this.follower.close();
  }

  opened(): void {
    // The stream was opened before its lanes.
  }

  replayed(frames: readonly Frame[]): Promise<void> {
    return this.options.socket.send(sseFrames(frames, 'named', this.sessionId));
  }

  ready(): Promise<void> {
    return this.options.socket.send('');
  }

  committed(commit: FeedCommit): void {
    if (commit.frames.length > 0) this.options.socket.write(commit.bytes('named'));
    if (this.isAnnounced && commit.state) this.tell(commit.state.json);
  }

  delta(delta: FeedDelta, ts: number): void {
    if (this.isAnnounced && this.options.withDeltas) this.options.socket.offer(delta.bytes(ts, true));
  }

  async caughtUp(): Promise<void> {
    for (;;) {
      const state = await this.follower.confirmedState();
      if (!state || this.follower.isClosed) return;
      if (state.c < this.follower.c) continue;
      if (state.c > this.follower.c && !state.running) {
        await this.follower.readOn();
        continue;
      }
      this.isAnnounced = true;
      this.tell(state.json);
      return;
    }
  }

  stated(stateJson: string): void {
    if (this.isAnnounced) this.tell(stateJson);
  }

  idle({ json }: sessionsPb.SessionState): void {
    if (this.isAnnounced) this.tell(json);
  }

  refused(): void {
    this.options.socket.write(refusalFrame(this.sessionId));
    this.options.onDone();
  }

  failed(error: unknown): void {
    if (this.follower.isClosed) return;
    if (isMargayError(error) && (error.code === 'NOT_FOUND' || error.code === 'PERMISSION_DENIED')) {
      this.refused();
      return;
    }
    this.options.logger.warn({ sessionId: this.sessionId, err: error }, 'stream cut: a session log could not be read');
    this.options.socket.cut('store');
  }

  private get sessionId(): string {
    return this.options.feed.sessionId;
  }

  /** From the head where nothing stored is wanted. */
  private async cursor(): Promise<Cursor | undefined> {
    const { seq } = this.options;
    if (seq !== undefined) return afterSeq(seq);
    const state = await this.follower.confirmedState();
    return state && afterSeq(state.seq);
  }

  /** The state is the same in all commits of a run, so it changes where one begins, waits or ends. */
  private tell(stateJson: string): void {
    if (this.told === stateJson) return;
    this.told = stateJson;
    this.options.socket.write(`event: ${this.sessionId}\n${stateFrame(stateJson)}`);
  }
}
