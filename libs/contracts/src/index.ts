export * as sessionsPb from './gen/margay/session/v1/sessions.pb';
export * as accessPb from './gen/margay/session/v1/access.pb';
export * as runnersPb from './gen/margay/session/v1/runners.pb';
export * as instancesPb from './gen/margay/session/v1/instances.pb';
export * as egressPb from './gen/margay/session/v1/egress.pb';
export * as secretsPb from './gen/margay/session/v1/secrets.pb';
export * as executorPb from './gen/margay/tools/v1/executor.pb';
export * as workspacesPb from './gen/margay/tools/v1/workspaces.pb';
export * as snapshotsPb from './gen/margay/tools/v1/snapshots.pb';
export * as sandboxdPb from './gen/margay/sandbox/v1/sandboxd.pb';
export * as contentPb from './gen/margay/sandbox/v1/content.pb';
export * as mcpPb from './gen/margay/mcp/v1/mcp.pb';
export * as idePb from './gen/margay/ide/v1/ide.pb';
export * as channelPb from './gen/margay/channel/v1/channel.pb';
export { Attachment } from './attachments';
export { EGRESS_CALLER_LINE_BYTES, EgressCaller, egressCallerLine } from './egress';
export {
  EGRESS_MODES,
  EgressInjection,
  EgressLimits,
  EgressMode,
  EgressPolicy,
  EgressRule,
  HostPattern,
  HostPort,
  isHostName,
  isHostPattern,
  matchesHost,
} from './egress-policy';
export {
  DeltaPayload,
  EVENT_PAYLOADS,
  RUNNER_EVENT_TYPES,
  isEventType,
  noticeOf,
  type EventInput,
  type EventPayloads,
  type EventType,
  type StoredEvent,
} from './events';
export { isNestedDeeper, JSON_DEPTH_MAX } from './nesting';
export { SandboxClassName, Tenant, TenantChange, USUAL_SANDBOX_CLASS } from './tenants';
export { METADATA, Principal, Role, RunGrant, SandboxGrant, Ticket, TicketPurpose, WORKTREE_SLUG } from './principal';
export { ManagedProject, SessionSpec, Worktree } from './projects';
export { ANY_REV, isAtRev } from './revisions';
export { LiveCommit, LiveDelta, SessionState, SessionStatus, SessionSummary } from './session-state';
export { subjects } from './subjects';
export { isoMicros, parseMicros } from './time';
export { EffectClass, ToolDescriptor, Truncation } from './tools';
export {
  ContentOrder,
  ContentSource,
  ContentStatus,
  SandboxView,
  SnapshotView,
  UploadFormat,
  WorkspaceContent,
  WorkspaceView,
} from './workspaces';
