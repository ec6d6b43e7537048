const FALSE = new Set(['', '0', 'false', 'no', 'off']);

/** A boolean query parameter: anything but empty, `0`, `false`, `no`, `off` is true; absent is false. */
export function isTrue(value: string | undefined): boolean {
  return value !== undefined && !FALSE.has(value.trim().toLowerCase());
}
