import { z } from 'zod';

const text = z.string();
const part = z.looseObject({ type: z.enum(['text', 'image_url', 'input_audio', 'file', 'refusal']) });
const content = z.union([text, z.array(part).min(1)]);
const toolCall = z.strictObject({
  id: text.min(1),
  type: z.literal('function'),
  function: z.strictObject({ name: text.min(1), arguments: text }),
});

/** One message of each role, with the fields the real API knows and no others. */
export const messageByRole = {
  system: z.strictObject({ role: z.literal('system'), content, name: text.optional() }),
  developer: z.strictObject({ role: z.literal('developer'), content, name: text.optional() }),
  user: z.strictObject({ role: z.literal('user'), content, name: text.optional() }),
  assistant: z.strictObject({
    role: z.literal('assistant'),
    content: content.nullish(),
    refusal: text.nullish(),
    name: text.optional(),
    annotations: z.array(z.unknown()).optional(),
    audio: z.unknown().optional(),
    tool_calls: z.array(toolCall).min(1).optional(),
  }),
  tool: z.strictObject({ role: z.literal('tool'), content, tool_call_id: text.min(1) }),
} as const;

export type ChatRole = keyof typeof messageByRole;

/** A message that passed its role's schema; fields of other roles are absent. */
export interface ChatMessage {
  role: ChatRole;
  content?: z.infer<typeof content> | null | undefined;
  name?: string | undefined;
  tool_call_id?: string | undefined;
  tool_calls?: z.infer<typeof toolCall>[] | undefined;
}

export const chatTool = z.strictObject({
  type: z.literal('function'),
  function: z.strictObject({
    name: text.min(1).max(64),
    description: text.optional(),
    parameters: z.record(text, z.unknown()).optional(),
    strict: z.boolean().nullish(),
  }),
});
export type ChatTool = z.infer<typeof chatTool>;

/** A request body that passed every check. */
export interface ChatRequest {
  model: string;
  messages: ChatMessage[];
  tools: ChatTool[];
  stream: boolean;
  includeUsage: boolean;
}

/** The text of a message: its string, or its text parts joined. */
export function textOf(message: ChatMessage | undefined): string {
  if (typeof message?.content === 'string') return message.content;
  return (message?.content ?? []).map((item) => (typeof item['text'] === 'string' ? item['text'] : '')).join('');
}

/** The top-level parameters of the real API. */
export const knownParameters: ReadonlySet<string> = new Set(
  `audio frequency_penalty function_call functions logit_bias logprobs max_completion_tokens max_tokens messages metadata
  modalities model moderation n parallel_tool_calls prediction presence_penalty prompt_cache_key prompt_cache_options
  prompt_cache_retention reasoning_effort response_format safety_identifier seed service_tier stop store stream
  stream_options temperature tool_choice tools top_logprobs top_p user verbosity web_search_options`.split(/\s+/),
);
