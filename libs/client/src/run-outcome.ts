import type { EventOf, MargayEvent } from './events';
import type { SessionStatus, Usage } from './records';

/** How a run ended. A failed run is a result too. */
export interface RunResult {
  /** `waiting` only with `returnWhenWaiting`: the run goes on once a person has decided. */
  status: SessionStatus | 'waiting';
  done_reason: string;
  /** The final answer, or the parenthesised sentence that closes a run without one. */
  text: string;
  usage: Usage;
  completion: EventOf<'completion'>['payload'] | null;
}

type Completion = EventOf<'completion'>['payload'];
type TokenField = Exclude<keyof Usage, 'calls'>;
const TOKEN_FIELDS: readonly TokenField[] = [
  'input_tokens',
  'output_tokens',
  'cache_creation_input_tokens',
  'cache_read_input_tokens',
  'reasoning_output_tokens',
];
const STATUS_BY_REASON: Record<string, SessionStatus> = {
  canceled: 'canceled',
  cancelled: 'canceled',
  error: 'failed',
  compact_failed: 'failed',
  awaiting_approval: 'awaiting_approval',
  unmet_goal: 'unmet_goal',
  max_steps_reached: 'incomplete',
};

/** The status that a completion means (rest §4.4). `done` is true on errors too, so the reason is asked first. */
export function statusOf(completion: Completion): SessionStatus {
  if (completion.blocked_code) return 'blocked';
  if (completion.done_reason.startsWith('command_failed:')) return 'failed';
  return STATUS_BY_REASON[completion.done_reason] ?? (completion.done ? 'completed' : 'incomplete');
}

/** Folds the events of one run into its result. */
export class RunOutcome {
  readonly #usage: Usage = {
    calls: 0,
    input_tokens: 0,
    output_tokens: 0,
    cache_creation_input_tokens: 0,
    cache_read_input_tokens: 0,
    reasoning_output_tokens: 0,
  };
  #text = '';

  /** The result, once the event is the run's completion. */
  apply(event: MargayEvent): RunResult | undefined {
    if (event.type === 'assistant') this.#text = event.payload.text;
    if (event.type === 'llm_call_end') this.#count(event.payload);
    if (event.type !== 'completion') return undefined;
    const { payload } = event;
    return { ...this.#result(statusOf(payload), payload.done_reason), completion: payload };
  }

  waiting(): RunResult {
    return { ...this.#result('waiting', ''), completion: null };
  }

  #result(status: RunResult['status'], doneReason: string): Omit<RunResult, 'completion'> {
    return { status, done_reason: doneReason, text: this.#text, usage: { ...this.#usage } };
  }

  #count(call: EventOf<'llm_call_end'>['payload']): void {
    this.#usage.calls += 1;
    for (const field of TOKEN_FIELDS) this.#usage[field] += call[field] ?? 0;
  }
}
