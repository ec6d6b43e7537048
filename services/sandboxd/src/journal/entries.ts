import type { EffectClass } from '@margay/contracts';
import type { FileVersion, PreparedEdit } from '@margay/toolbox';

export interface StartedEntry {
  callId: string;
  argHash: string;
  toolId: string;
  effect: EffectClass;
  runId: string;
  generation: number;
  epoch: number;
  /** Milliseconds since the epoch; for people. */
  at: number;
}

/** The `Finished` message as it is stored and sent. */
export interface StoredResult {
  status: string;
  resultJson: string;
  exitCode?: number | undefined;
  limitHit: string;
  changedFiles: string[];
  durationMs: number;
  fileVersion?: FileVersion | undefined;
  unchanged: boolean;
}

export type JournalEntry =
  | ({ kind: 'started' } & StartedEntry)
  | { kind: 'prepared'; callId: string; edit: PreparedEdit }
  | { kind: 'finished'; callId: string; result: StoredResult }
  | { kind: 'forgotten'; callIds: string[] };

/** What is known of one call. */
export interface JournalRow {
  started: StartedEntry;
  prepared?: PreparedEdit;
  /** Where the line with the result lies in the file. */
  result?: { offset: number; length: number };
}
