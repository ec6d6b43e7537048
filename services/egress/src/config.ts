import { z } from 'zod';

const seconds = (fallback: number) => z.coerce.number().min(0).default(fallback).describe('seconds');

export const EgressConfig = z.object({
  MARGAY_EGRESS_POLICY_FILE: z.string().describe('a JSON file of who may reach what, see docs/egress.md'),
  /** For tool-executor on the same machine; its folder is closed to other users. */
  MARGAY_EGRESS_LOCAL_SOCKET: z.string().startsWith('/').describe('path of the private Unix socket'),
  MARGAY_EGRESS_DRAIN_SECONDS: seconds(5),
  MARGAY_EGRESS_POLICY_LOOK_SECONDS: z.coerce.number().min(0.1).default(1).describe('seconds from 0.1'),
});
export type EgressConfig = Readonly<z.infer<typeof EgressConfig>>;
