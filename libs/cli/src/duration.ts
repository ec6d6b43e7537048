import { InvalidArgumentError } from '@margay/client';

const UNIT_MS: Record<string, number> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 };

/** Milliseconds of `90`, `90s`, `10m`, `1.5h`, `250ms`; a bare number counts seconds. */
export function durationMs(text: string): number {
  const match = /^(\d+(?:\.\d+)?)(ms|s|m|h)?$/.exec(text.trim());
  const ms = match ? Number(match[1]) * (UNIT_MS[match[2] ?? 's'] ?? 0) : 0;
  if (ms > 0) return ms;
  throw new InvalidArgumentError('bad_duration', `"${text}" is no duration: write 90, 90s, 10m or 1.5h`);
}
