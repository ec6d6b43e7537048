import { z } from 'zod';

export const McpPoolConfig = z.object({
  MARGAY_MCP_POOL_LISTEN: z.string().describe('host:port of its gRPC server'),
  MARGAY_KEYS_DIR: z.string().describe('folder of the service keys'),
});
