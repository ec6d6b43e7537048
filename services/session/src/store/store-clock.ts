import { UnavailableError } from '@margay/errors';

interface Hello {
  /** The store's clock as it answers. */
  localTime?: unknown;
}

/** A replica whose clock is further off takes no requests: times of commits would run ahead of everybody's. */
const SKEW_MAX_MS = 2_000;

type Store = { command(command: { hello: 1 }): Promise<Hello> };

/** How far this machine's clock and the store's are apart, as far as that can be told; undefined where the store names no time. */
export async function clockSkewMs(db: Store, now: () => number = Date.now): Promise<number | undefined> {
  const askedMs = now();
  const { localTime } = await db.command({ hello: 1 });
  const answeredMs = now();
  if (!(localTime instanceof Date)) return undefined;
  // Somewhere between question and answer the store looked at its clock.
  return Math.max(0, askedMs - localTime.getTime(), localTime.getTime() - answeredMs);
}

/** @throws UnavailableError `clock_skew` where this machine's clock and the store's are more than 2 s apart */
export async function checkClock(db: Store, now: () => number = Date.now): Promise<void> {
  const skewMs = (await clockSkewMs(db, now)) ?? 0;
  if (skewMs > SKEW_MAX_MS)
    throw new UnavailableError(
      'clock_skew',
      `the clock of this machine is ${Math.round(skewMs)} ms off the document store's; synchronise both`,
    );
}
