import { isMargayError, type MargayError } from '@margay/errors';
import type { Logger } from '@margay/platform';

const EVERY_MS = 1_000;

export interface ClockGuardOptions {
  /** Throws `clock_skew` where the clock is off; other errors say nothing about it. */
  check: () => Promise<void>;
  /** The clock was found to be off for the first time since it was right. */
  onOff: () => void;
  logger: Logger;
}

/**
 * A replica whose clock is off serves nobody: what it signs would be refused elsewhere as expired or not yet valid, and it
 * would refuse what others have signed. Being not ready keeps new callers away; this turns away those who come anyway.
 */
export class ClockGuard {
  /** Why nobody is served; undefined while the clock is right. */
  refusal: MargayError | undefined;
  private timer?: NodeJS.Timeout;
  private isLooking = false;

  constructor(private readonly options: ClockGuardOptions) {}

  /** Resolves once the clock has been looked at. */
  async start(): Promise<void> {
    await this.look();
    this.timer = setInterval(() => void this.look(), EVERY_MS);
    this.timer.unref();
  }

  stop(): void {
    clearInterval(this.timer);
  }

  private async look(): Promise<void> {
    if (this.isLooking) return;
    this.isLooking = true;
    try {
      await this.options.check();
      if (this.refusal) this.options.logger.info('the clock of this replica is right again');
      this.refusal = undefined;
    } catch (error) {
      if (isMargayError(error) && error.reason === 'clock_skew') this.onOff(error);
      else this.options.logger.debug({ err: error }, 'the clock could not be compared with the store');
    } finally {
      this.isLooking = false;
    }
  }

  private onOff(error: MargayError): void {
    const wasRight = this.refusal === undefined;
    this.refusal = error;
    if (!wasRight) return;
    this.options.logger.error({ err: error }, 'the clock of this replica is off; it serves nobody until it is right');
    this.options.onOff();
  }
}
