export { startMcpPool } from './start-mcp-pool';
