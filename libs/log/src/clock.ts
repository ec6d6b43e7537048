/** Time as the log sees it; a simulator or a test supplies its own. */
export abstract class LogClock {
  /** Wall clock, whole microseconds since the epoch. */
  abstract nowMicros(): number;
  /** Milliseconds of a clock that never jumps. */
  abstract monotonicMs(): number;
  abstract sleep(ms: number): Promise<void>;
  /** Uniform in [0, 1), for back-off. */
  abstract random(): number;
}
