import { SandboxClassName, SessionState, SessionSummary } from '@margay/contracts';
import { z } from 'zod';

const TEXT_MAX_CHARS = 500_000;
const CONTEXT_MAX_BYTES = 4 * 1024;
const ATTACHMENTS_MAX_BYTES = 64 * 1024;
const DEVICE_TOOL_ID = /^device_[a-z0-9_]{1,48}$/;

/** A non-blank text; its messages are those of the reference. */
const requiredText = (field: string, missing: string) =>
  z
    .string({
      error: ({ input }) =>
        input === undefined || input === null ? missing : `Invalid input: '${field}' must be a string`,
    })
    .max(TEXT_MAX_CHARS, `Invalid input: '${field}' is longer than ${TEXT_MAX_CHARS} characters`)
    .refine((text) => text.trim() !== '', missing);

const shortText = (maxChars: number) => z.string().max(maxChars).nullish();

const DeviceTool = z.looseObject({
  tool_id: z
    .string()
    .regex(DEVICE_TOOL_ID, "Invalid input: 'tool_id' of a device tool must match device_[a-z0-9_]{1,48}"),
  description: z.string().optional(),
  parameters: z.record(z.string(), z.unknown()).optional(),
});

const names = z.array(z.string()).nullish();
const Mode = z.enum(['plan', 'act']).nullish();
const SandboxClass = SandboxClassName.nullish();

/** Any keys; those that mean something have a type. */
const Context = z
  .looseObject(
    {
      model: shortText(256),
      mode: Mode,
      project: shortText(256),
      cwd: shortText(4096),
      skill: shortText(256),
      sandbox_class: SandboxClass,
      fallback_models: names,
      mcp_tools: names,
      client_capabilities: names,
      device_tools: z.array(DeviceTool).nullish(),
    },
    "Invalid input: 'context' must be an object",
  )
  .refine(
    (context) => Buffer.byteLength(JSON.stringify(context)) <= CONTEXT_MAX_BYTES,
    `Invalid input: 'context' is larger than ${CONTEXT_MAX_BYTES} bytes`,
  )
  .nullish();

const Attachments = z
  .array(z.record(z.string(), z.unknown()))
  .refine(
    (attachments) => Buffer.byteLength(JSON.stringify(attachments)) <= ATTACHMENTS_MAX_BYTES,
    `Invalid input: 'attachments' is larger than ${ATTACHMENTS_MAX_BYTES} bytes`,
  )
  .nullish();

export const CreateBody = z.object({
  session_tag: shortText(256).describe('known tag: that session is returned'),
  project: shortText(256),
  mode: Mode,
  context: Context,
  attachments: Attachments,
  cwd: shortText(4096),
  sandbox_class: SandboxClass.describe('of its sandboxes; absent: that of its project, else of the tenant'),
  fork_from: shortText(256).describe('id or tag of a session: the new one begins as a fork of it'),
  fork_at_ts: shortText(64).describe('ts of the last event that is copied; absent: all'),
});
export type CreateBody = z.infer<typeof CreateBody>;

export const QueryBody = z.object({
  query: requiredText('query', "Invalid input: 'query' is required"),
  mode: Mode,
  project: shortText(256),
  context: Context,
  attachments: Attachments,
  skill: shortText(256),
  skill_args: shortText(4096),
  cwd: shortText(4096),
});
export type QueryBody = z.infer<typeof QueryBody>;

export const MessageBody = z.object({ text: requiredText('text', "'text' is required") });
export type MessageBody = z.infer<typeof MessageBody>;

const number = (field: string) =>
  z
    .string()
    .regex(/^\d{1,9}$/, `Invalid input: '${field}' must be a whole number`)
    .optional();

export const ListQuery = z.object({
  include_archived: z.string().optional(),
  project: z
    .union([z.string(), z.array(z.string())])
    .optional()
    .describe('repeatable; any of them'),
  pinned: z.string().optional().describe('absent: all'),
  tag: z.string().optional().describe('only the session with this tag'),
  limit: number('limit'),
  offset: number('offset'),
});
export type ListQuery = z.infer<typeof ListQuery>;

const PAGE_MAX = 1_000;
const PageSize = z
  .string()
  .refine(
    (text) => /^\d{1,4}$/.test(text) && Number(text) >= 1 && Number(text) <= PAGE_MAX,
    `Invalid input: 'limit' must be a whole number from 1 to ${PAGE_MAX}`,
  );

export const EventsQuery = z.object({
  after: z.string().optional().describe('only later events, exclusive: ISO-8601 or epoch seconds'),
  before: z.string().optional().describe('only earlier events, exclusive; with `limit` it pages backwards'),
  limit: PageSize.optional().describe(
    `at most so many, up to ${PAGE_MAX}: the newest of the range, with \`after\` alone the oldest`,
  ),
  truncate: z.string().optional().describe('true: long fields are cut at 2,000 characters'),
});
export type EventsQuery = z.infer<typeof EventsQuery>;

/** Headers of requests that may be repeated. */
export const RepeatHeaders = z.object({
  'Idempotency-Key': z
    .string()
    .optional()
    .describe('1 to 128 visible ASCII characters; a repeat gets the first answer'),
});

/** Headers of requests that create or drive a session. */
export const DriveHeaders = z.object({
  'X-Margay-Capabilities': z
    .string()
    .optional()
    .describe('ids a client can render, separated by commas; also X-Mewbo-Capabilities'),
  'X-Margay-Surface': z.string().optional().describe('name of the client; also X-Mewbo-Surface'),
  ...RepeatHeaders.shape,
});

const Event = z.looseObject({ ts: z.string(), type: z.string(), payload: z.unknown() });
const sessionId = z.string();

export const Created = z.object({ session_id: sessionId });
export const SessionList = z.object({
  sessions: z.array(SessionSummary),
  limit: z.number().optional(),
  offset: z.number().optional(),
});
export const Accepted = z.object({ session_id: sessionId, accepted: z.literal(true), run_id: z.string() });
export const Canceled = z.object({ session_id: sessionId, canceled: z.boolean() });
export const Enqueued = z.object({ session_id: sessionId, enqueued: z.literal(true), run_id: z.string().optional() });
export const Interrupted = z.object({ session_id: sessionId, interrupted: z.boolean() });
export const Terminated = z.object({
  session_id: sessionId,
  status: z.literal('terminated'),
  terminated_at: z.string(),
  cancelled_triggers: z.number(),
});
export const EventsPage = SessionState.extend({ session_id: sessionId, events: z.array(Event) });
