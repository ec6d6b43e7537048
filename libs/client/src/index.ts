export {
  AbortedError,
  AlreadyExistsError,
  CancelledError,
  DeadlineExceededError,
  FailedPreconditionError,
  InternalError,
  InvalidArgumentError,
  MargayError,
  NotFoundError,
  PermissionDeniedError,
  ResourceExhaustedError,
  UnauthenticatedError,
  UnavailableError,
  UnimplementedError,
  isMargayError,
  type ErrorCode,
  type HttpFacts,
} from '@margay/errors';
export type { EventPayloads } from '@margay/contracts';
export { MargayClient, type ProjectOptions } from './margay-client';
export {
  Session,
  type AnswerOptions,
  type Binding,
  type EventsOptions,
  type QueryOptions,
  type QuestionAnswer,
  type RetryOptions,
} from './session';
export { type CreateOptions, type ListOptions } from './sessions';
export { Run, type ResultOptions, type RunStreamOptions } from './run';
export { statusOf, type RunResult } from './run-outcome';
export { type ConnectionChange, type ConnectionOptions } from './connections';
export { type StreamOptions } from './event-stream';
export { type MultiplexItem, type MultiplexOptions } from './multiplexed-stream';
export { type Cursor } from './position';
export {
  type DeltaEvent,
  type EventOf,
  type EventType,
  type MargayEvent,
  type SessionStateItem,
  type StreamItem,
  type UnknownEvent,
} from './events';
export {
  type Content,
  type EventPage,
  type ManagedProject,
  type Models,
  type Project,
  type Sandbox,
  type Snapshot,
  type SessionSpec,
  type SessionState,
  type SessionStatus,
  type SessionSummary,
  type Ticket,
  type Termination,
  type Tool,
  type Usage,
  type Workspace,
  type Worktree,
} from './records';
export { Workspaces, type ContentOptions, type UploadOptions } from './workspaces';
export { type ClientOptions, type RequestOptions } from './options';
export { type Call } from './transport';
export { systemClock, type Clock } from './clock';
