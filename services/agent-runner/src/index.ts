export { startAgentRunner } from './start';
export { AgentRunnerConfig } from './config';
export { runAlone } from './isolated/run-alone';
export { GrpcInbox } from './journal/grpc-inbox';
export { GrpcJournal, type GrpcJournalOptions, type OwnedRun } from './journal/grpc-journal';
