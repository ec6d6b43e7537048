import type { sessionsPb } from '@margay/contracts';
import type { Logger } from '@margay/platform';
import type { CommitReader } from './commit-reader';
import type { Cursor } from './cursor';
import { sseFrames, type FeedCommit, type FeedDelta, type Frame, type FrameStyle } from './feed-commit';
import type { LaneSource } from './lane-source';
import { LogFollower, type FollowerSink } from './log-follower';

import type { SessionFeed } from './session-feed';
import type { StreamSettings } from './settings';
import type { SseSocket } from './sse-socket';
import { STREAM_END, stateFrame } from './control-frames';

export interface SessionStreamOptions {
  source: LaneSource;
  feed: SessionFeed;
  reader: CommitReader;
  socket: SseSocket;
  cursor: Cursor;
  /** How its frames are spelt. */
  style: FrameStyle;
  withDeltas: boolean;
  settings: StreamSettings;
  logger: Logger;
}

/** One client's stream of one session: replay, state, live events, state and end. See docs/protocol.md §8. */
export class SessionStream implements FollowerSink {
  private readonly follower: LogFollower;
  /** Last commit delivered after which no run was active. */
  private idleC = 0;
  private isOpen = false;
  private isAnnounced = false;

  constructor(private readonly options: SessionStreamOptions) {
    const { feed, reader, settings } = options;
    this.follower = new LogFollower({ feed, reader, settings, sink: this });
  }

  /** Resolves when the stream is live or over; rejects only while nothing has been sent. */
  async start(): Promise<void> {
    try {
      await this.follower.start(this.options.cursor);
    } catch (error) {
      if (!this.isOpen) throw error;
      this.failed(error);
    }
  }

  /** The socket is closed, from whichever side. */
  closed(): void {
    this.follower.close();
    this.options.source.release(this.options.feed);
  }

  /** Ends the response early and cleanly; the client comes back with its cursor. */
  leave(): void {
    this.options.socket.end();
  }

  opened(): void {
    if (this.isOpen) return;
    this.isOpen = true;
    this.options.socket.open();
  }

  replayed(frames: readonly Frame[]): Promise<void> {
    this.options.socket.write(Buffer.from(sseFrames(frames, this.options.style)));
    return this.ready();
  }

  ready(): Promise<void> {
    return this.options.socket.ready();
  }

  committed(commit: FeedCommit): void {
    if (commit.state?.running === false) this.idleC = commit.c;
    if (commit.frames.length > 0) this.options.socket.write(commit.bytes(this.options.style));
  }

  delta(delta: FeedDelta, ts: number): void {
    if (this.isAnnounced && this.options.withDeltas) this.options.socket.offer(delta.bytes(ts));
  }

  /** Tells the state of the confirmed end; where no run is active and all is delivered, this is the end. */
  async caughtUp(): Promise<void> {
    for (;;) {
      const state = await this.follower.confirmedState();
      if (!state || this.follower.isClosed) return;
      if (state.running) {
        // Unless an end was delivered while the question was on its way.
        if (this.idleC > state.c) continue;
        this.announce(state);
        return;
      }
      if (state.c > this.follower.c) await this.follower.readOn();
      else if (state.c === this.follower.c) {
        this.announce(state);
        this.finish(state);
        return;
      }
      if (this.follower.isClosed) return;
    }
  }

  stated(stateJson: string): void {
    if (this.isAnnounced) this.options.socket.write(Buffer.from(stateFrame(stateJson)));
  }

  idle(state: sessionsPb.SessionState): void {
    if (this.isAnnounced) this.finish(state);
  }

  refused(): void {
    this.options.socket.cut('access');
  }

  failed(error: unknown): void {
    const { feed, logger, socket } = this.options;
    logger.warn({ sessionId: feed.sessionId, err: error }, 'stream cut: the session log could not be read');
    socket.cut('store');
  }

  private announce({ json }: sessionsPb.SessionState): void {
    if (this.isAnnounced) return;
    this.isAnnounced = true;
    this.options.socket.write(Buffer.from(stateFrame(json)));
  }

  private finish({ json }: sessionsPb.SessionState): void {
    this.options.socket.write(Buffer.from(stateFrame(json) + STREAM_END));
    this.options.socket.end();
  }
}
