import { UnavailableError } from '@margay/errors';

/** Later than this a timer was kept by something that blocked the event loop. */
const BLOCK_MS = 1_000;
const REMEMBERED_MS = 60_000;

interface Block {
  endedMs: number;
  ms: number;
}

/** What of the recent past the checks look at. */
const READY = { withinMs: 15_000, blockedMs: 5_000, blocks: 1 };
/** A process that is blocked now answers no probe at all; after one long pause it works again and need not be killed. */
const LIVE = { withinMs: REMEMBERED_MS, blockedMs: 30_000, blocks: 3 };

/**
 * Remembers when the event loop of this process stood still. Readiness fails once it was blocked for 5 of the last 15 s;
 * liveness once it was for half of the last minute, again and again.
 */
export class LoopWatch {
  private blocks: Block[] = [];

  constructor(private readonly nowMs: () => number = () => performance.now()) {}

  /** @param lateMs how much later than asked a timer fired just now */
  observe(lateMs: number): void {
    if (lateMs < BLOCK_MS) return;
    const nowMs = this.nowMs();
    this.blocks = this.blocks.filter(({ endedMs }) => nowMs - endedMs < REMEMBERED_MS);
    this.blocks.push({ endedMs: nowMs, ms: lateMs });
  }

  /** @throws UnavailableError `event_loop_blocked` */
  checkReady(): void {
    this.check(READY);
  }

  /** @throws UnavailableError `event_loop_blocked` */
  checkLive(): void {
    this.check(LIVE);
  }

  private check({ withinMs, blockedMs, blocks }: typeof READY): void {
    const sinceMs = this.nowMs() - withinMs;
    const recent = this.blocks.filter(({ endedMs }) => endedMs > sinceMs);
    const totalMs = recent.reduce((sum, { endedMs, ms }) => sum + Math.min(ms, endedMs - sinceMs), 0);
    if (recent.length < blocks || totalMs < blockedMs) return;
    throw new UnavailableError(
      'event_loop_blocked',
      `the event loop stood still for ${Math.round(totalMs)} of the last ${withinMs} ms; look for long synchronous work`,
    );
  }
}
