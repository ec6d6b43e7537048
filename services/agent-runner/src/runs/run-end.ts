import type { runnersPb } from '@margay/contracts';
import type { StopCause } from '@margay/engine';
import type { Logger } from '@margay/platform';
import type { OwnedRun } from '../journal/grpc-journal';

/** How a run left the runner. */
export type RunEnd =
  /** It ended, waits, was handed over, or belongs to somebody else. */
  | { kind: 'left' }
  /** It failed outside the engine and is queued again. */
  | { kind: 'returned' }
  /** Nobody drives it any more and its log could not be told so: the session service has to take it back. */
  | { kind: 'lost'; detail: string };

/** A run that is driven here, or in a process apart. */
export interface DrivenRun {
  readonly run: OwnedRun;
  renew(grant: string): void;
  stop(cause: StopCause): void;
  /** Resolves once the run has left; never rejects. */
  drive(): Promise<RunEnd>;
}

/** One life of a run on this runner. */
export interface RunLife {
  assign: runnersPb.Assign;
  /** How often it failed here before, outside the engine, one time after the other. */
  failures: number;
  logger: Logger;
}
