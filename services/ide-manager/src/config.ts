import { z } from 'zod';

export const IdeManagerConfig = z.object({
  MARGAY_IDE_MANAGER_LISTEN: z.string().describe('host:port of its gRPC server'),
  MARGAY_KEYS_DIR: z.string().describe('folder of the service keys'),
});
