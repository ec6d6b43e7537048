import type { EffectClass } from '@margay/contracts';

/** What became of a call; the `ExecuteFinished` message as far as such calls use it. */
export interface StoredResult {
  status: 'ok' | 'error' | 'timed_out' | 'cancelled' | 'killed' | 'unknown';
  resultJson: string;
  durationMs: number;
}

/** Who asks for a call, and with what. */
export interface GuardedCall {
  callId: string;
  tenantId: string;
  sessionId: string;
  runId: string;
  /** Generation and epoch in one number that only grows, see `rankOf`. */
  rank: number;
  toolId: string;
  effect: EffectClass;
  argsHash: string;
}

export interface GuardRow extends GuardedCall {
  state: 'sent' | 'done';
  /** The process that makes the call; empty: it gave the call back. */
  process: string;
  /** Raised while that process lives. */
  beat: number;
  /** Its end was asked for. */
  isCancelled: boolean;
  result?: StoredResult;
}

/** A row as somebody saw it: changes are made only where it still is like that. */
export type Seen = Pick<GuardRow, 'callId' | 'process' | 'beat'>;

/**
 * The at-most-once guard of effects outside a sandbox (protocol §4) and the highest epochs known for them. Every write is
 * conditional and durable on return.
 */
export abstract class GuardStore {
  /** @returns false where the call has a row already */
  abstract insert(call: GuardedCall, process: string): Promise<boolean>;
  abstract find(callId: string): Promise<GuardRow | undefined>;
  /** Shows that the process lives. @returns the rows of these calls as they are now */
  abstract beat(process: string, callIds: readonly string[]): Promise<GuardRow[]>;
  /** Stores the result of a call that this process makes. @returns false where it is not its call any more */
  abstract finish(callId: string, process: string, result: StoredResult): Promise<boolean>;
  /** Ends a call whose process is gone. @returns false where the row has changed since it was seen */
  abstract settle(seen: Seen, result: StoredResult): Promise<boolean>;
  /** Takes over a call whose process is gone. @returns false where the row has changed since it was seen */
  abstract take(seen: Seen, process: string, rank: number): Promise<boolean>;
  /** Gives a call back that is to be repeated elsewhere. */
  abstract release(callId: string, process: string): Promise<void>;
  /** Removes the row of a call that was never sent. */
  abstract remove(callId: string, process: string): Promise<void>;
  /** Asks for the end of one call. */
  abstract cancel(callId: string): Promise<void>;
  /** Asks for the end of all calls of a session below this rank. */
  abstract cancelBelow(tenantId: string, sessionId: string, rank: number): Promise<void>;
  /** Raises the lowest rank a session is served at. @returns the highest known, this one included */
  abstract raise(tenantId: string, sessionId: string, rank: number): Promise<number>;
  /** Deletes rows that nobody can ask for any more. */
  abstract expire(): Promise<void>;
}

const EPOCHS_PER_GENERATION = 2 ** 32;

/** Generations before epochs: a store restored from a backup starts a new generation. */
export function rankOf({ generation, epoch }: { generation: number; epoch: number }): number {
  return generation * EPOCHS_PER_GENERATION + epoch;
}
