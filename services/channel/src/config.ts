import { z } from 'zod';

export const ChannelConfig = z.object({
  MARGAY_CHANNEL_LISTEN: z.string().describe('host:port of its gRPC server'),
  MARGAY_KEYS_DIR: z.string().describe('folder of the service keys'),
});
