export { allowAll } from './embed/allow-all';
export { createEngine, Engine } from './embed/engine';
export type { DeltaEvent, EngineEvent, EngineOptions, RunOptions, RunResult } from './embed/engine-options';
export { EngineSession } from './embed/engine-session';
export { journalOn, type SessionLog } from './embed/journal-on';
export { LogInbox, toItem } from './embed/log-inbox';
export { LogJournal, type LogJournalOptions } from './embed/log-journal';
export { ManualClock } from './embed/manual-clock';
export { memoryPorts, SequenceIds, type MemoryPorts } from './embed/memory-ports';
export { RunStream } from './embed/run-stream';
export type { RunAgentOptions } from './loop/agent-run';
export { callId, epochOfCall } from './loop/call-ids';
export { DEFAULT_LIMITS, type RunLimits } from './loop/limits';
export { runAgent, type RunOutcome } from './loop/run-agent';
export { NO_INCARNATION } from './loop/sandbox';
export {
  Approvals,
  Clock,
  Ids,
  Inbox,
  Journal,
  Model,
  ModelFailure,
  RunStopped,
  SANDBOX_LOST,
  Tools,
  type Said,
  type EnginePorts,
  type FileVersion,
  type InboxItem,
  type JournalRecord,
  type ModelAnswer,
  type ModelFailureKind,
  type ModelImage,
  type ModelMessage,
  type ModelRequest,
  type ModelTool,
  type ModelToolCall,
  type ModelUsage,
  type OpenedRun,
  type Progress,
  type StopCause,
  type SandboxWait,
  type ToolInvocation,
  type ToolOutcome,
  type WrongIncarnation,
} from './ports';
export { attachmentsIn } from './context/attachments';
export { rootAgentId } from './state/agent-state';
export { askUserQuestion, type AskedQuestions } from './tools/ask-user-question';
export { canonicalIds, expandAliases, namesTool } from './tools/aliases';
export {
  defineTool,
  type DefinedTool,
  type JsonSchema,
  type JsonToolDefinition,
  type ToolContext,
  type ToolDefinition,
  type ToolResult,
} from './tools/define-tool';
export { LocalTools, type LocalToolsOptions } from './tools/local-tools';
export { ENGINE_VERSION } from './version';
