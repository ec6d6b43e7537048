import type { Logger } from '@margay/platform';
import { refusalFrame } from './control-frames';
import type { LaneSource, SideFeed, Wanted } from './lane-source';
import type { SessionFeed } from './session-feed';
import { SessionLane } from './session-lane';
import type { StreamSettings } from './settings';
import { SharedSocket } from './shared-socket';
import type { SseSocket } from './sse-socket';

export interface MultiplexedStreamOptions {
  wanted: readonly Wanted[];
  /** Whether the caller's credential reaches a session at all. */
  covers: (sessionId: string) => boolean;
  withDeltas: boolean;
  socket: SseSocket;
  source: LaneSource;
  user: SideFeed | undefined;
  settings: StreamSettings;
  logger: Logger;
}

/** Sessions that are read at the same time when a stream begins. */
const STARTING = 8;
const RETRY_MS = 1_000;

/** Many sessions, and the feed of their user, over one connection; it goes on across runs. See docs/protocol.md §8. */
export class MultiplexedStream {
  private readonly lanes = new Map<SessionFeed, SessionLane>();
  private readonly socket: SharedSocket;

  constructor(private readonly options: MultiplexedStreamOptions) {
    this.socket = new SharedSocket(options.socket);
  }

  /** Opens the connection, then the lanes; resolves when all are live or over. */
  async start(): Promise<void> {
    const { socket, wanted, user } = this.options;
    socket.open();
    const waiting = [...wanted];
    const startSome = async (): Promise<void> => {
      for (let next = waiting.shift(); next && !socket.isClosed; next = waiting.shift()) await this.startLane(next);
    };
    await Promise.all([user?.start(this.socket), ...Array.from({ length: STARTING }, startSome)]);
  }

  /** The socket is closed, from whichever side. */
  closed(): void {
    this.options.user?.close();
    for (const feed of [...this.lanes.keys()]) this.drop(feed);
  }

  /** Ends the response early and cleanly; the client comes back with its cursors. */
  leave(): void {
    this.socket.write(`retry: ${RETRY_MS}\n\n`);
    this.socket.end();
  }

  private async startLane({ sessionId, seq }: Wanted): Promise<void> {
    const { covers, source, withDeltas, settings, logger } = this.options;
    if (!covers(sessionId)) return this.socket.write(refusalFrame(sessionId));
    const { feed, reader } = source.take(sessionId);
    const onDone = (): void => this.drop(feed);
    const lane = new SessionLane({ feed, reader, socket: this.socket, seq, withDeltas, settings, logger, onDone });
    this.lanes.set(feed, lane);
    await lane.start();
  }

  private drop(feed: SessionFeed): void {
    this.lanes.get(feed)?.close();
    if (this.lanes.delete(feed)) this.options.source.release(feed);
  }
}
