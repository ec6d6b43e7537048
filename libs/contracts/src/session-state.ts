import { z } from 'zod';

export const SessionStatus = z.enum([
  'idle',
  'running',
  'completed',
  'incomplete',
  'canceled',
  'failed',
  'awaiting_approval',
  'blocked',
  'unmet_goal',
  'terminated',
]);
export type SessionStatus = z.infer<typeof SessionStatus>;

/** What a run waits for; it holds no runner meanwhile. */
const Waiting = z.object({ kind: z.string(), id: z.string(), since: z.string(), expires_at: z.string().nullable() });

/** State of a session now, as `/events`, `session_state` frames and lists show it. */
export const SessionState = z.object({
  running: z.boolean(),
  status: SessionStatus,
  /** `""` while running, null before any run. */
  done_reason: z.string().nullable(),
  title: z.string(),
  recoverable: z.boolean(),
  terminated: z.boolean(),
  terminated_at: z.string().nullable(),
  blocked_code: z.string().optional(),
  failure_reason: z.string().optional(),
  models_tried: z.array(z.string()).optional(),
  waiting: Waiting.optional(),
  /** Place in the queue, counted from 1, while a run waits for a runner. */
  queue_position: z.number().int().optional(),
});
export type SessionState = z.infer<typeof SessionState>;

/** One row of `GET /api/sessions`. */
export const SessionSummary = z.object({
  session_id: z.string(),
  title: z.string(),
  created_at: z.string(),
  updated_at: z.string(),
  status: SessionStatus,
  done_reason: z.string().nullable(),
  running: z.boolean(),
  recoverable: z.boolean(),
  context: z.record(z.string(), z.unknown()),
  origin: z.string(),
  capabilities: z.array(z.string()),
  workspace: z.string().nullable(),
  archived: z.boolean(),
  terminated: z.boolean(),
  terminated_at: z.string().nullable(),
  projects: z.array(z.string()),
  /** Tags that name this session; the command line finds it by them. */
  tags: z.array(z.string()).optional(),
  blocked_code: z.string().optional(),
  failure_reason: z.string().optional(),
  models_tried: z.array(z.string()).optional(),
  waiting: Waiting.optional(),
  queue_position: z.number().int().optional(),
  pinned: z.literal(true).optional(),
  pinned_at: z.string().optional(),
});
export type SessionSummary = z.infer<typeof SessionSummary>;

/** Live message on `margay.<tenant>.session.<id>.event`. Without `frames` (too large) readers fetch the commit. */
export const LiveCommit = z.object({
  c: z.number().int(),
  frames: z.array(z.tuple([z.number().int(), z.number().int(), z.string()])).optional(),
  /** JSON text of `SessionState` after this commit. */
  state: z.string(),
  /** The commit was announced before: beside the log something about its state has changed. */
  restated: z.literal(true).optional(),
});
export type LiveCommit = z.infer<typeof LiveCommit>;

/** Live message on `margay.<tenant>.session.<id>.delta`. */
export const LiveDelta = z.object({
  /** Commit this fragment follows. */
  c: z.number().int(),
  runId: z.string(),
  payload: z.object({
    text: z.string(),
    agent_id: z.string(),
    depth: z.number().int(),
    step: z.number().int(),
    offset: z.number().int(),
  }),
});
export type LiveDelta = z.infer<typeof LiveDelta>;
