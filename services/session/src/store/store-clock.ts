import { UnavailableError } from '@margay/errors';

interface Hello {
  /** The store's clock as it answers. */
  localTime?: unknown;
}

/** A replica whose clock is further off takes no requests: times of commits would run ahead of everybody's. */
const SKEW_MAX_MS = 2_000;

/** @throws UnavailableError `clock_skew` where this machine's clock and the store's are more than 2 s apart */
export async function checkClock(
  db: { command(command: { hello: 1 }): Promise<Hello> },
  now: () => number = Date.now,
): Promise<void> {
  const askedMs = now();
  const { localTime } = await db.command({ hello: 1 });
  const answeredMs = now();
  if (!(localTime instanceof Date)) return;
  // Somewhere between question and answer the store looked at its clock.
  const behindMs = askedMs - localTime.getTime();
  const aheadMs = localTime.getTime() - answeredMs;
  const skewMs = Math.max(behindMs, aheadMs);
  if (skewMs > SKEW_MAX_MS)
    throw new UnavailableError(
      'clock_skew',
      `the clock of this machine is ${Math.round(skewMs)} ms off the document store's; synchronise both`,
    );
}
