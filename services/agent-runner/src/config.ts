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
});
export type AgentRunnerConfig = z.infer<typeof AgentRunnerConfig>;
