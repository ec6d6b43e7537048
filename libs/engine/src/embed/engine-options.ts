import type { StoredEvent } from '@margay/contracts';
import type { BlobStore, CommitStore, RunOptions as PinnedOptions } from '@margay/log';
import type { RunLimits } from '../loop/limits';
import type { Approvals, Clock, Ids, Model, ModelUsage, Tools } from '../ports';
import type { DefinedTool } from '../tools/define-tool';

/** Ephemeral text fragment of a running step; never stored. */
export interface DeltaEvent {
  type: 'agent_message_delta';
  payload: { agent_id: string; depth: number; step: number; offset: number; text: string };
}

/** A stored event of a session, or a fragment of text on its way. */
export type EngineEvent = StoredEvent | DeltaEvent;

export interface EngineOptions {
  model: Model;
  tools?: readonly (DefinedTool | Tools)[];
  clock: Clock;
  ids: Ids;
  store: CommitStore;
  blobs: BlobStore;
  /** Default: every call is allowed. */
  approvals?: Approvals;
  /** Model of runs that name none; default: the model port's own. */
  defaultModel?: string;
  limits?: Partial<RunLimits>;
  /** Unchanging facts for the prompt, such as `Working directory: /workspace`. */
  environment?: readonly string[];
  /** Texts for the prompt, most general first. */
  instructions?: readonly string[];
  onEvent?: (event: EngineEvent, sessionId: string) => void;
}

export interface RunOptions {
  model?: string;
  fallbackModels?: string[];
  mode?: PinnedOptions['mode'];
  /** Steps that may execute tools; 0 = unlimited, the default. */
  stepBudget?: number;
  /** Its abort cancels the run. */
  signal?: AbortSignal;
  /** The same id accepts a run once, however often it is sent. */
  commitId?: string;
}

export interface RunResult {
  runId: string;
  status: string;
  doneReason: string;
  /** The final answer, or a closure marker in parentheses. */
  text: string;
  usage: ModelUsage;
  steps: number;
  error?: string;
}
