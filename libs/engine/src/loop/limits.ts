/** How patient a run is. Times in milliseconds. */
export interface RunLimits {
  /** One attempt at a model call, from its start to its last byte. */
  attemptMs: number;
  /** Silence within an answer that has begun. */
  chunkGapMs: number;
  /** Attempts at a call on the run's own model; fallback models get one each. */
  attempts: number;
  backoffBaseMs: number;
  backoffMaxMs: number;
  /** Calls of one answer that are run; those beyond are refused, each by a result. */
  callsPerAnswer: number;
  /** Calls of one answer that are taken note of; those beyond are left out of the conversation. */
  callsTaken: number;
  /** Results that arrive within this share a commit. */
  groupMs: number;
  /** How long a run waits for a person before it gives its runner back. */
  waitGraceMs: number;
  /** How long a call may take to end after it was told to. */
  cancelGraceMs: number;
  /** Tokens the model takes; results are capped by a share of it. 0 = unknown. */
  contextWindowTokens: number;
}

export const DEFAULT_LIMITS: RunLimits = {
  attemptMs: 300_000,
  chunkGapMs: 240_000,
  attempts: 2,
  backoffBaseMs: 1_000,
  backoffMaxMs: 60_000,
  callsPerAnswer: 128,
  callsTaken: 256,
  groupMs: 30,
  waitGraceMs: 5_000,
  cancelGraceMs: 5_000,
  contextWindowTokens: 0,
};

const RESERVED_TOKENS = 16_000;
const CHARS_PER_TOKEN = 3;
const RESULT_FLOOR_CHARS = 2_000;

/** Cap on one result's text: the tool's own, and at most half of what the window has room for. 0 = none. */
export function resultCap(toolCapChars: number, windowTokens: number): number {
  if (windowTokens === 0) return toolCapChars;
  const share = Math.floor(0.5 * (windowTokens - RESERVED_TOKENS) * CHARS_PER_TOKEN);
  const room = Math.max(RESULT_FLOOR_CHARS, share);
  return toolCapChars === 0 ? room : Math.min(toolCapChars, room);
}
