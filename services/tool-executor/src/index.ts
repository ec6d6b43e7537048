export { ToolExecutorConfig } from './config';
export type { Isolation } from './sandbox/sandbox-driver';
export { startToolExecutor, type RunningToolExecutor } from './start-tool-executor';
