import { z } from 'zod';

export const AgentRunnerConfig = z.object({
  MARGAY_KEYS_DIR: z.string(),
  MARGAY_SESSION_URL: z.string(),
  MARGAY_TOOL_EXECUTOR_URL: z.string(),
  MARGAY_POOL: z.string().default('default'),
  /** Runs driven at once. */
  MARGAY_RUNNER_SLOTS: z.coerce.number().int().min(1).max(10_000).default(500),
  /** Any OpenAI-compatible endpoint. */
  OPENAI_BASE_URL: z.string().optional(),
  OPENAI_API_KEY: z.string().optional(),
  MARGAY_HEARTBEAT_SECONDS: z.coerce.number().positive().default(5),
  /** Heap of the process of a run whose earlier owners died. */
  MARGAY_ISOLATED_HEAP_MB: z.coerce.number().int().min(64).max(65_536).default(512).describe('64 to 65536'),
  /** Such processes at once; further runs of that kind wait for a place. */
  MARGAY_ISOLATED_RUNS: z.coerce.number().int().min(1).max(100).default(4).describe('1 to 100'),
});
export type AgentRunnerConfig = z.infer<typeof AgentRunnerConfig>;
