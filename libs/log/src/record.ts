import type { QuestionOutcome } from './command';

/** Settings of a run, fixed at its acceptance. */
export interface RunOptions {
  model: string;
  fallbackModels: string[];
  mode: 'act' | 'plan';
  /** Allow-list for MCP tools only; null = unrestricted. */
  mcpTools: string[] | null;
  /** What the client can render. */
  capabilities: string[];
  /** Steps of the whole agent tree; 0 = unlimited. */
  stepBudget: number;
  /** Version of the engine that accepted the run. */
  engineVersion: string;
}

/**
 * Private state beside the public events. The log itself writes these kinds; the engine adds its own (`OpenRecord`).
 * Records are in the order in which the model sees them.
 */
export type LogRecord =
  /** A run starts. */
  | { kind: 'run'; runId: string; options: RunOptions }
  /** A person's message that opens a run. */
  | { kind: 'user'; runId: string; text: string; attachments: unknown[] }
  /** Something for the running agent, reaching the model at the next `consumed`. */
  | { kind: 'inbox'; n: number; item: 'steer' | 'interrupt'; text: string }
  /** A decision that a call waits for; `text` is its result. */
  | { kind: 'inbox'; n: number; item: 'answer'; callId: string; outcome: QuestionOutcome; text: string }
  /** The call has asked a person. */
  | { kind: 'question'; callId: string }
  /** The run and all that followed it count no more: it is run again. */
  | { kind: 'cut'; runId: string }
  /** Inbox items up to `to` are in the conversation from this point on. */
  | { kind: 'consumed'; to: number }
  | { kind: 'sandbox'; incarnation: string }
  /** A run has ended, with the answer that the model gave or a closure marker. */
  | { kind: 'end'; runId: string; doneReason: string; text: string };

export const LOG_RECORD_KINDS: ReadonlySet<string> = new Set<LogRecord['kind']>([
  'run',
  'user',
  'inbox',
  'question',
  'cut',
  'consumed',
  'sandbox',
  'end',
]);

/** A record of the engine's own kinds: any JSON object with a `kind` the log does not use itself. */
export interface OpenRecord {
  kind: string;
  [field: string]: unknown;
}
