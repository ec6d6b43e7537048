export { startAgentRunner } from './start';
export { AgentRunnerConfig } from './config';
