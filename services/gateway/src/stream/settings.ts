/** Times and sizes of streams; tests shorten the times. */
export interface StreamSettings {
  /** Streams of this replica. */
  maxStreams: number;
  /** A subscription outlives its last listener by this. */
  lingerMs: number;
  /** A missing commit is waited for this long, then read from the store. */
  gapMs: number;
  /** Sessions silent for this long are looked up. */
  probeMs: number;
  heartbeatMs: number;
  /** A client that drains nothing for this long is cut. */
  stallMs: number;
  maxUnsentBytes: number;
  /** Keys of open streams are checked again this often. */
  recheckMs: number;
  /** The feed of a user looks so often for what it missed. */
  userRefreshMs: number;
  /** On shutdown streams are closed over this span. */
  drainMs: number;
  retryFirstMs: number;
  retryMaxMs: number;
}

export const STREAM_SETTINGS: StreamSettings = {
  maxStreams: 10_000,
  lingerMs: 5_000,
  gapMs: 100,
  probeMs: 2_000,
  heartbeatMs: 15_000,
  stallMs: 10_000,
  maxUnsentBytes: 256 * 1024,
  recheckMs: 4_000,
  userRefreshMs: 30_000,
  drainMs: 5_000,
  retryFirstMs: 100,
  retryMaxMs: 2_000,
};
