export { ToolExecutorConfig } from './config';
export type { Isolation } from './driver/sandbox-driver';
export { sandboxesByKey } from './store/sandboxes-by-key';
export { startToolExecutor, type RunningToolExecutor } from './start-tool-executor';
