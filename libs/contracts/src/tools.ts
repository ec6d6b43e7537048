import { z } from 'zod';

/** The three classes of a call's effect: `pure` may repeat, `keyed` repeats safely with its key, `unkeyed` runs at most once. */
export const EffectClass = z.enum(['pure', 'keyed', 'unkeyed']);
export type EffectClass = z.infer<typeof EffectClass>;

/** How an over-long result is cut: the shares of head and tail that stay. */
export const Truncation = z.object({ head: z.number().min(0).max(1), tail: z.number().min(0).max(1) });

/** What is known of a tool before it is called. Wire form: snake_case as in the reference. */
export const ToolDescriptor = z.object({
  tool_id: z.string().min(1),
  name: z.string(),
  description: z.string(),
  enabled: z.boolean().default(true),
  disabled_reason: z.string().nullable().default(null),
  kind: z.enum(['local', 'mcp']).default('local'),
  server: z.string().nullable().default(null),
  scope: z.string().default('builtin'),
  requires_capability: z.string().nullable().default(null),
  /** JSON Schema of the arguments. */
  schema: z.record(z.string(), z.unknown()),
  operation: z.enum(['get', 'set']),
  effect: EffectClass,
  /** `sandbox`: on the session's workspace; `outside`: elsewhere, e.g. by HTTP, where no sandbox needs to be there. */
  placement: z.enum(['sandbox', 'outside']).default('sandbox'),
  /** May run beside other calls of the same step. */
  concurrency_safe: z.boolean().default(true),
  read_only: z.boolean().default(false),
  capability: z.enum(['read', 'write', 'execute']).nullable().default(null),
  /** `cancel`: an interrupt kills a running call of this tool; `block`: it finishes first. */
  interrupt_behavior: z.enum(['block', 'cancel']).default('block'),
  /** Cap on the text the model receives, in UTF-16 units; 0 = none. */
  max_result_chars: z.number().int().min(0).default(32_000),
  truncate: Truncation.default({ head: 2 / 3, tail: 1 / 3 }),
  /** Outer time-out of one call, seconds. */
  timeout: z.number().positive().default(120),
  /** An argument holding a longer time-out in seconds raises the outer one to it + 5. */
  timeout_argument: z.string().nullable().default(null),
  /** Text for the system prompt on when and how to use the tool; empty = none. */
  guidance: z.string().default(''),
});
export type ToolDescriptor = z.infer<typeof ToolDescriptor>;
