const NAME = /_g(\d+)$/;

/**
 * Each generation of the store is a database of its own, `<name>_g<N>`: a restore makes the next one. Grants carry the
 * number, so that those of an older generation open nothing. 0 where the name has none.
 */
export function storeGenerationOf(database: string): number {
  return Number(NAME.exec(database)?.[1] ?? 0);
}
