export { ToolExecutorConfig } from './config';
export type { Isolation } from './driver/sandbox-driver';
export { startToolExecutor, type RunningToolExecutor } from './start-tool-executor';
