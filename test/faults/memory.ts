/** Runs beside the one that eats memory. */
export const NEIGHBOURS = 50;

/** Whoever has an answer of the first user's first run in hands fills its heap until it dies. */
export const MEMORY_EATER = { MARGAY_FAULT_POINTS: 'runner.before-commit-a=exhaust-memory@*?run-0-0-' };
