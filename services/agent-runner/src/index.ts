export { startAgentRunner } from './start';
export { AgentRunnerConfig } from './config';
export { RUN_ALONE } from './isolated/messages';
export { runAlone } from './isolated/run-alone';
export { GrpcInbox } from './journal/grpc-inbox';
export { GrpcJournal, type GrpcJournalOptions, type OwnedRun } from './journal/grpc-journal';
