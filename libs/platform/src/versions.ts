/** Compares `major.minor.patch`; what follows a dash or plus does not count. @returns below 0 where `a` is older */
export function compareVersions(a: string, b: string): number {
  const [left, right] = [numbersOf(a), numbersOf(b)];
  for (const [index, number] of left.entries()) {
    const difference = number - (right[index] ?? 0);
    if (difference !== 0) return difference;
  }
  return 0;
}

function numbersOf(version: string): number[] {
  const [core = ''] = version.split(/[-+]/, 1);
  return [0, 1, 2].map((index) => Number(core.split('.')[index] ?? 0) || 0);
}
