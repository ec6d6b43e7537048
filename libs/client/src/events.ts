import type { DeltaPayload, EventPayloads, EventType as StoredType, SessionState } from '@margay/contracts';
import { InternalError } from '@margay/errors';

interface Stamp {
  /** ISO-8601 UTC, six fractional digits, strictly increasing within a session. */
  ts: string;
  /** Counts the session's public events from 1. */
  seq?: number;
  run_id?: string;
}

type Stored = { [T in StoredType]: Stamp & { type: T; payload: EventPayloads[T] } }[StoredType];

/** A fragment of a running step's text. Never stored, so it has no `seq` and moves no cursor. */
export interface DeltaEvent extends Omit<Stamp, 'seq'> {
  type: 'agent_message_delta';
  seq?: undefined;
  payload: DeltaPayload;
}

/** An event of a type that this version does not know: a newer server, or a reference type it does not type yet. */
export interface UnknownEvent extends Stamp {
  type: 'unknown';
  wire_type: string;
  payload: Record<string, unknown>;
}

/** Records and payloads as the wire spells them; unknown fields pass. Narrow by `type`. */
export type MargayEvent = Stored | DeltaEvent | UnknownEvent;
export type EventType = MargayEvent['type'];
export type EventOf<T extends EventType> = Extract<MargayEvent, { type: T }>;

/** The state of the session now: after the replay, when it changes, and at the end. */
export type SessionStateItem = { type: 'session_state' } & SessionState;
export type StreamItem = MargayEvent | SessionStateItem;

/** Total, so a type added to the contracts does not compile until it is listed. */
const KNOWN: Record<StoredType | 'agent_message_delta', true> = {
  session: true,
  context: true,
  run_accepted: true,
  user: true,
  user_steer: true,
  assistant: true,
  completion: true,
  title_update: true,
  recovery: true,
  user_question: true,
  user_question_answered: true,
  session_terminated: true,
  run_note: true,
  llm_call_start: true,
  llm_call_end: true,
  llm_retry: true,
  llm_fallback: true,
  agent_message: true,
  agent_message_delta: true,
  tool_call: true,
  permission: true,
  tool_result: true,
  sandbox_state: true,
  workspace_restored: true,
  workspace_forked: true,
  write_progress_signal: true,
};

/** An event as it was parsed from JSON, its type still any text. */
export interface WireEvent extends Stamp {
  type: string;
  payload: Record<string, unknown>;
}

export function eventOf(wire: WireEvent): MargayEvent {
  if (Object.hasOwn(KNOWN, wire.type)) return wire as MargayEvent;
  const { type, ...rest } = wire;
  return { type: 'unknown', wire_type: type, ...rest };
}

/** The JSON object of one frame. */
export function parseFrame(data: string): WireEvent {
  try {
    const frame = JSON.parse(data) as WireEvent;
    if (typeof frame?.type === 'string') return frame;
  } catch (cause) {
    throw new InternalError('bad_frame', 'the stream holds a frame that is not JSON: is this a Margay gateway?', {
      cause,
    });
  }
  throw new InternalError('bad_frame', 'the stream holds a frame without a type: is this a Margay gateway?');
}
