import type { OutputLog } from './shell/output-log';

/** Identity of a file's content without reading it. */
export interface FileVersion {
  /** Modification time in nanoseconds, as text: it does not fit a number. */
  mtimeNs: string;
  /** Size in bytes. */
  size: number;
}

/** `ok` and `error` are the tool's own word; the others say how a call was ended from outside. */
export type ToolStatus = 'ok' | 'error' | 'timed_out' | 'killed' | 'cancelled' | 'unknown';

/** A structured result (rest §4.5) or plain text. */
export type ToolResultValue = string | Record<string, unknown>;

/** How a call ended. A failed tool is an outcome, never an exception. */
export interface ToolOutcome {
  status: ToolStatus;
  /** For `error` and the outside endings: a sentence without the prefix `ERROR: `. */
  result: ToolResultValue;
  exitCode?: number;
  /** `wall_time`, `output`, `restart`; absent = none. */
  limitHit?: string;
  /** Absolute paths of files the call changed. */
  changedFiles: string[];
  durationMs: number;
  /** Only after a complete, untruncated read: what `ifUnchanged` may name next time. */
  fileVersion?: FileVersion;
  /** True: `ifUnchanged` still holds, the file was not read and the result is empty. */
  unchanged?: boolean;
}

/** A file about to be replaced: its new content lies complete in `temporary`. */
export interface PreparedFile {
  path: string;
  temporary: string;
  /** SHA-256 of the content before; null = the file did not exist. */
  before: string | null;
  /** SHA-256 of the content after. */
  after: string;
}

/** The result an edit will have once its prepared files are renamed into place. */
export interface PreparedEdit {
  files: PreparedFile[];
  outcome: ToolOutcome;
}

/** What a tool's implementation knows of the call it serves. */
export interface CallContext {
  callId: string;
  /** Aborted by cancel and by the outer time-out; the tool then ends within two seconds. */
  signal: AbortSignal;
  /** Takes the output as it comes. */
  output: OutputLog;
  ifUnchanged?: FileVersion;
  /** Awaited after new contents are staged and before the first rename; a journal makes the edit repeatable here. */
  onPrepared?: (edit: PreparedEdit) => Promise<void>;
}

/** An expected failure inside a tool; its message becomes the result of an `error` outcome. */
export class ToolFailure extends Error {}
