import { LOG_RECORD_KINDS, type LogRecord, type OpenRecord } from '@margay/log';
import type { FileVersion, ModelImage, ModelUsage } from '../ports';

/** What an agent is told before everything else. Stored when a run's agent starts, its text only where it is new. */
export interface PromptRecord {
  kind: 'prompt';
  agentId: string;
  sha256: string;
  /** Absent: the text of the session's earlier record with this hash. */
  text?: string;
}

export interface RecordedCall {
  callId: string;
  providerCallId: string;
  name: string;
  /** Exactly as the model wrote it. */
  argumentsText: string;
}

/** An answer of the model that the run went on after. The answer that ended the run is in the log's `end` record. */
export interface AssistantRecord {
  kind: 'assistant';
  agentId: string;
  /** Counts the model's answers within the run from 1. */
  step: number;
  /** Model as it was asked for. */
  model: string;
  text: string;
  toolCalls: RecordedCall[];
  usage: ModelUsage;
  /** The text goes on in the next answer. */
  isCut?: true;
  /** Sandbox that the epoch of this commit has committed to; calls of this answer may have been sent there. */
  incarnation?: string;
}

export interface ToolRecord {
  kind: 'tool';
  agentId: string;
  callId: string;
  /** Exactly what the model gets. */
  text: string;
  isError: boolean;
  /** One call too many in its answer: says nothing of whether the run makes progress. */
  isRefused?: true;
  images?: ModelImage[];
  /** A complete read: the model holds this version of what `key` names. */
  read?: { key: string; path: string; version: FileVersion };
  changedFiles?: string[];
}

/** Why the engine speaks to the model. */
export type NoteCause = 'calls' | 'failures' | 'length' | 'budget' | 'wrap_up';

/** A message of the engine to the model. */
export interface NoteRecord {
  kind: 'note';
  agentId: string;
  cause: NoteCause;
  text: string;
  /** `budget`: the threshold that was reached. */
  threshold?: number;
}

/** What opened the run, with what its `@references` led to when it began. */
export interface ExpansionRecord {
  kind: 'expansion';
  agentId: string;
  text: string;
}

export type EngineRecord = ExpansionRecord | PromptRecord | AssistantRecord | ToolRecord | NoteRecord;

/** A record as an object of the log's open form. */
export function toOpenRecord(record: EngineRecord): OpenRecord {
  return { ...record };
}

const ENGINE_KINDS: ReadonlySet<string> = new Set<EngineRecord['kind']>([
  'expansion',
  'prompt',
  'assistant',
  'tool',
  'note',
]);

/** The log is written by engines only, so its records are what their kind says. */
export function isEngineRecord(record: LogRecord | OpenRecord | EngineRecord): record is EngineRecord {
  return ENGINE_KINDS.has(record.kind);
}

export function isLogRecord(record: LogRecord | OpenRecord | EngineRecord): record is LogRecord {
  return LOG_RECORD_KINDS.has(record.kind);
}
