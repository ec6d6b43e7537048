import type {
  ManagedProject,
  SessionSpec as Spec,
  SessionState,
  SessionStatus,
  SandboxView,
  SnapshotView,
  SessionSummary as Summary,
  ToolDescriptor,
  WorkspaceView,
  Worktree,
} from '@margay/contracts';
import type { MargayEvent } from './events';

export type { ManagedProject, SessionState, SessionStatus, Worktree };

/** One row of `sessions.list()`. */
export type SessionSummary = Summary & Pick<SessionState, 'waiting' | 'queue_position'>;

/** One page of `events()`, with the state of the session now. */
export interface EventPage extends SessionState {
  session_id: string;
  events: MargayEvent[];
}

/** Stands for the key in a link: `?ticket=`. */
export interface Ticket {
  ticket: string;
  /** Less than a minute from now. */
  expires_at: string;
}

export interface Termination {
  session_id: string;
  status: 'terminated';
  terminated_at: string;
  cancelled_triggers: number;
}

/** One row of `tools()`; the rest of the descriptor is the server's own. */
export type Tool = Pick<
  ToolDescriptor,
  | 'tool_id'
  | 'name'
  | 'kind'
  | 'enabled'
  | 'description'
  | 'disabled_reason'
  | 'server'
  | 'scope'
  | 'requires_capability'
>;

export interface Project {
  name: string;
  path: string;
  description: string;
  available: boolean;
  source: 'config' | 'managed';
  project_id?: string;
  is_worktree?: boolean;
  parent_project_id?: string;
  branch?: string;
  repo?: { host: string; owner: string; name: string };
  aliases?: string[];
}

/** Answer of `spec()` and `bind()`. */
export interface SessionSpec {
  session_id: string;
  spec: Spec;
  /** What of it can be changed now. */
  editable: Record<string, boolean>;
  source: 'spec' | 'legacy_context';
}

export interface Models {
  models: string[];
  default: string;
  capabilities: Record<string, { supports_vision?: boolean }>;
}

/** Token counts of one run, all its agents together. */
export interface Usage {
  calls: number;
  input_tokens: number;
  output_tokens: number;
  cache_creation_input_tokens: number;
  cache_read_input_tokens: number;
  reasoning_output_tokens: number;
}

/** Where files lie: of a project, or of a session without one. */
export type Workspace = WorkspaceView;

export type Sandbox = SandboxView;
/** An archive of a workspace. */
export type Snapshot = SnapshotView;

/** What a workspace begins with. */
export type Content =
  | { kind: 'clone'; url: string; ref?: string; depth?: number; submodules?: boolean; lfs?: boolean }
  | { kind: 'template'; name: string }
  /** Of the files of a project. */
  | { kind: 'template'; snapshot: string }
  | { kind: 'empty' };
