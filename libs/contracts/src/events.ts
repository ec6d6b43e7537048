import { z } from 'zod';

/**
 * Public events of a session, in their wire form (rest catalogue and engine appendix). Payloads are open: unknown fields
 * pass, so that additions are safe for old readers; named fields are checked.
 */
const agent = { agent_id: z.string(), depth: z.number().int().min(0) };
const agentStep = { ...agent, step: z.number().int().min(0) };
const open = <T extends z.ZodRawShape>(shape: T) => z.looseObject(shape);

export const EVENT_PAYLOADS = {
  session: open({ event: z.string() }),
  context: open({}),
  run_accepted: open({
    session_id: z.string(),
    run_id: z.string(),
    ts: z.string(),
    /** How the sandbox is kept apart, where that is not by bubblewrap: `uid`, `none`. */
    sandbox: z.string().optional(),
  }),
  user: open({ text: z.string(), attachments: z.array(z.unknown()).optional() }),
  user_steer: open({ text: z.string() }),
  assistant: open({ text: z.string() }),
  completion: open({
    done: z.boolean(),
    done_reason: z.string(),
    task_result: z.string().nullable().optional(),
    error: z.string().optional(),
    last_error: z.string().optional(),
    blocked_code: z.string().optional(),
    failure_reason: z.string().optional(),
    models_tried: z.array(z.string()).optional(),
    trace_id: z.string().optional(),
  }),
  title_update: open({ title: z.string() }),
  recovery: open({ action: z.string() }),
  user_question: open({
    call_id: z.string(),
    /** Shown by whoever answers. */
    call_token: z.string(),
    questions: z.array(z.unknown()),
    timeout_seconds: z.number().int().nullable(),
    notes_placeholder: z.string().nullable(),
  }),
  user_question_answered: open({
    call_id: z.string(),
    outcome: z.string(),
    answered_via: z.string().nullable(),
    answers: z.array(z.unknown()).nullable(),
    notes: z.string().nullable(),
    delivery: z.string().nullable(),
  }),
  session_terminated: open({ terminated_at: z.string(), cancelled_triggers: z.number().int() }),
  run_note: open({ text: z.string() }),

  llm_call_start: open({ ...agentStep, model: z.string(), bound_tools: z.array(z.string()).optional() }),
  llm_call_end: open({
    ...agentStep,
    success: z.boolean(),
    model: z.string(),
    input_tokens: z.number().int().optional(),
    output_tokens: z.number().int().optional(),
    cache_creation_input_tokens: z.number().int().optional(),
    cache_read_input_tokens: z.number().int().optional(),
    reasoning_output_tokens: z.number().int().optional(),
    cumulative_input_tokens: z.number().int().optional(),
    cumulative_output_tokens: z.number().int().optional(),
    error_type: z.string().optional(),
    reason: z.string().optional(),
  }),
  llm_retry: open({ ...agentStep, model: z.string(), attempt: z.number().int(), max_attempts: z.number().int() }),
  llm_fallback: open({ ...agentStep, from_model: z.string(), to_model: z.string(), reason: z.string() }),
  agent_message: open({ ...agent, text: z.string() }),

  tool_call: open({
    tool_id: z.string(),
    operation: z.string(),
    tool_input: z.unknown(),
    tool_call_id: z.string(),
    agent_id: z.string(),
    model: z.string(),
  }),
  permission: open({ tool_id: z.string(), operation: z.string(), tool_input: z.unknown(), decision: z.string() }),
  tool_result: open({
    tool_id: z.string(),
    operation: z.string(),
    tool_input: z.unknown(),
    result: z.string().nullable(),
    success: z.boolean(),
    summary: z.string(),
    error: z.string().optional(),
    agent_id: z.string(),
    model: z.string(),
    tool_call_id: z.string().optional(),
    duration_ms: z.number().optional(),
    /** `unknown`: the call may or may not have taken effect. */
    outcome: z.string().optional(),
  }),
  sandbox_state: open({
    sandbox_id: z.string().optional(),
    state: z.string(),
    reason: z.string(),
    /** In the words of whoever refused. */
    message: z.string().optional(),
    attempt: z.number().int().optional(),
    /** Among those of its tenant that wait. */
    queue_position: z.number().int().optional(),
  }),
  /** The files of a sandbox that was lost are back as of then; null: there was no snapshot, so they are not. */
  workspace_restored: open({ snapshot_id: z.string().nullable(), age_seconds: z.number().nullable() }),
  /** Another session works on the workspace `from`; this one goes on with a copy of it. */
  workspace_forked: open({ from: z.string(), snapshot_id: z.string().nullable() }),
  write_progress_signal: open({ ...agentStep, steps_since_write: z.number().int(), threshold: z.number().int() }),
} as const;

export type EventType = keyof typeof EVENT_PAYLOADS;
export type EventPayloads = { [T in EventType]: z.infer<(typeof EVENT_PAYLOADS)[T]> };

/** An event that is about to be written: it has no number and no time yet. */
export type EventInput = { [T in EventType]: { type: T; payload: EventPayloads[T] } }[EventType];

/** A stored event as its frame spells it. `ts` has six fractional digits; `seq` counts from 1 within the session. */
export type StoredEvent = {
  [T in EventType]: { ts: string; type: T; payload: EventPayloads[T]; seq: number; run_id?: string };
}[EventType];

/** Ephemeral text fragment of a running step; `offset` counts UTF-16 units of the step's text before it. */
export const DeltaPayload = open({ ...agentStep, text: z.string(), offset: z.number().int().min(0) });
export type DeltaPayload = z.infer<typeof DeltaPayload>;

/** Event types that a runner may write for its run; all others are written by session itself. */
export const RUNNER_EVENT_TYPES: ReadonlySet<string> = new Set<EventType>([
  'llm_call_start',
  'llm_call_end',
  'llm_retry',
  'llm_fallback',
  'agent_message',
  'tool_call',
  'permission',
  'tool_result',
  'user_question',
  'sandbox_state',
  'recovery',
  'run_note',
  'workspace_restored',
  'workspace_forked',
  'write_progress_signal',
]);

export function isEventType(type: string): type is EventType {
  return Object.hasOwn(EVENT_PAYLOADS, type);
}

/** What a sandbox's service may tell a run of its workspace; the runner writes it. */
const SANDBOX_NOTICES: ReadonlySet<string> = new Set<EventType>(['run_note', 'workspace_restored', 'workspace_forked']);

/** The event that a notice is; undefined for one that is none. */
export function noticeOf(type: string, payload: unknown): EventInput | undefined {
  if (!SANDBOX_NOTICES.has(type) || !isEventType(type)) return undefined;
  const parsed = EVENT_PAYLOADS[type].safeParse(payload);
  return parsed.success ? ({ type, payload: parsed.data } as EventInput) : undefined;
}
