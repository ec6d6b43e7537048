import type { CommitReader } from './commit-reader';
import type { SessionFeed } from './session-feed';
import type { SharedSocket } from './shared-socket';

/** A session that a client wants to follow, from behind an event; without a number only what comes. */
export interface Wanted {
  sessionId: string;
  seq: number | undefined;
}

/** What a stream has of the gateway around it, in the name of its caller. */
export interface LaneSource {
  take(sessionId: string): { feed: SessionFeed; reader: CommitReader };
  release(feed: SessionFeed): void;
}

/** Something else that writes on a stream of many sessions. */
export interface SideFeed {
  start(socket: SharedSocket): Promise<void>;
  close(): void;
}
