export { BlobStore, type BlobReference } from './blobs';
export { bodyHash, fold, hashOf, type Fold } from './build';
export { canonicalJson, sha256Hex } from './canonical';
export { LogClock } from './clock';
export type {
  AcceptCommand,
  AnswerCommand,
  BindCommand,
  CancelCommand,
  ClaimCommand,
  Command,
  Completion,
  CreateCommand,
  ExpireCommand,
  FinishCommand,
  InterruptCommand,
  LeaveCause,
  MessageCommand,
  ParkCommand,
  QuestionOutcome,
  RecoverCommand,
  RejectReason,
  Rejection,
  ReleaseCommand,
  RunnerCommand,
  RunRequest,
  StepCommand,
  TakeoverCommand,
  TerminateCommand,
} from './command';
export { CommitLoop, type CommitLoopOptions } from './commit-loop';
export {
  commitStoreContract,
  type CommitStoreContractOptions,
  type CommitStoreHarness,
  type ContractCase,
} from './contract/commit-store-contract';
export { acceptCommand, createCommand, hashed, messageCommand, runRequest } from './contract/sample-commands';
export { decide } from './decide';
export { bindingOf } from './decide-bind';
export { INTERRUPT_TEXT } from './decide-inbox';
export { isRejected, type Accepted, type DecideRules, type Decision } from './decision';
export {
  commitKey,
  tipOf,
  type Answer,
  type CommitDocument,
  type Effect,
  type RunRowState,
  type StoredCommand,
  type StoredFrame,
  type Tip,
} from './document';
export { effectsOf } from './effects';
export { FORK_CUT_TEXT, ForkWriter, isHalfMade, type ForkPlan } from './fork';
export {
  CALL_ID_MAX_CHARS,
  HEAD_MAX_BYTES,
  OPEN_QUESTIONS_MAX,
  emptyHead,
  type Head,
  type HeadQuestion,
  type HeadRun,
  type LastRun,
} from './head';
export { ALL_LOOP_RULES, type LoopRules } from './loop-rules';
export { MemoryBlobStore } from './memory-blobs';
export { MemoryCommitStore } from './memory-store';
export { inlineBlobs, offload } from './offload';
export { offloadCommand } from './offload-command';
export type { CommitOutcome } from './outcome';
export { readConfirmedTip, readTip } from './read-tip';
export { LOG_RECORD_KINDS, type LogRecord, type OpenRecord, type RunOptions } from './record';
export { packRecord, unpackRecord } from './references';
export { sessionState, statusOf, titleOf } from './state';
export { COMMIT_MAX_BYTES } from './size';
export { CommitStore } from './store';
export { LogCheck, verifyLog, type LogFault } from './verify';
