/** ISO-8601 UTC with exactly six fractional digits and `+00:00`, from whole microseconds since the epoch. */
export function isoMicros(micros: number): string {
  const seconds = new Date(Math.floor(micros / 1000)).toISOString().slice(0, 19);
  return `${seconds}.${String(micros % 1_000_000).padStart(6, '0')}+00:00`;
}

const ISO = /^(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?\s*(Z|[+ -]\d\d:?\d\d)?$/;

/**
 * Whole microseconds since the epoch from an ISO-8601 text (a space may stand for the `+` that a query string lost) or
 * from epoch seconds such as `1720000000.25`; undefined if it is neither. Without an offset it is read as UTC.
 */
export function parseMicros(text: string): number | undefined {
  const trimmed = text.trim();
  if (/^\d+(\.\d+)?$/.test(trimmed)) return Math.round(Number(trimmed) * 1_000_000);
  const match = ISO.exec(trimmed);
  if (!match) return undefined;
  const [, date, clock, fraction = '', offset = 'Z'] = match;
  const millis = Date.parse(`${date}T${clock}${offset.replace(/^ /, '+')}`);
  if (Number.isNaN(millis) || !isDay(date)) return undefined;
  return millis * 1000 + Number(fraction.slice(0, 6).padEnd(6, '0'));
}

/** The parser of dates takes the 30th of February for the 2nd of March. */
function isDay(date = ''): boolean {
  return new Date(`${date}T00:00:00Z`).toISOString().startsWith(date);
}
