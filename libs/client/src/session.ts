import { InternalError, NotFoundError } from '@margay/errors';
import { EventStream, type StreamOptions } from './event-stream';
import { eventOf, type StreamItem, type WireEvent } from './events';
import type { RequestOptions } from './options';
import type { Cursor } from './position';
import type { EventPage, SessionSpec, SessionSummary, Termination } from './records';
import { Run } from './run';
import { withKey, type Call, type Transport } from './transport';

/** What a create or a query may set; absent fields keep what the session has. */
export interface Binding {
  mode?: 'plan' | 'act';
  model?: string;
  fallbackModels?: readonly string[];
  project?: string;
  /** A folder of the server's machine, where the server allows it. */
  cwd?: string;
  skill?: string;
  /** Allow-list of MCP tools; absent = all, empty = none. */
  mcpTools?: readonly string[];
  attachments?: readonly unknown[];
  /** Further context fields, in their wire form. */
  context?: Readonly<Record<string, unknown>>;
}

export type QueryOptions = RequestOptions & Binding & { skillArgs?: string };

export interface EventsOptions extends RequestOptions {
  /** Only events later than this time. */
  after?: string;
  before?: string;
  limit?: number;
  /** Caps long fields at 2,000 characters. */
  truncate?: boolean;
}

export interface RetryOptions extends RequestOptions {
  /** Time of the `user` event to run again; default: the last. */
  fromTs?: string;
  /** Said instead of that event's text. */
  text?: string;
  model?: string;
}

/** One answer per question, in order: positions of options, or free text. */
export type QuestionAnswer = { selected_indexes: readonly number[] } | { text: string };

export interface AnswerOptions extends RequestOptions {
  notes?: string;
}

/** The wire form of a binding. */
export function bindingBody(binding: Binding): Record<string, unknown> {
  const { model, fallbackModels, mcpTools, skill, context } = binding;
  const merged = { ...context, model, fallback_models: fallbackModels, mcp_tools: mcpTools, skill };
  const { mode, project, cwd, attachments } = binding;
  const isBare = Object.values(merged).every((value) => value === undefined);
  return { mode, project, cwd, attachments, ...(isBare ? {} : { context: merged }) };
}

export const requestOptions = ({ signal, timeoutMs, idempotencyKey, headers }: RequestOptions): RequestOptions => ({
  ...(signal ? { signal } : {}),
  ...(timeoutMs === undefined ? {} : { timeoutMs }),
  ...(idempotencyKey === undefined ? {} : { idempotencyKey }),
  ...(headers ? { headers } : {}),
});

/** A handle on one session. Making it sends nothing. */
export class Session {
  /** The last event that a stream of this handle gave; later runs are read from here. */
  #seen: Cursor | undefined;

  constructor(
    private readonly transport: Transport,
    readonly id: string,
  ) {}

  /** Starts a run. `FAILED_PRECONDITION`: `session_running` while one is active, `session_terminated` for good. */
  async query(text: string, options: QueryOptions = {}): Promise<Run> {
    const after = this.#seen;
    const body = { query: text, ...bindingBody(options), skill_args: options.skillArgs };
    const answer = await this.#post<{ run_id?: string }>('query', this.#keyed(options, body));
    return this.#run(answer.run_id, after);
  }

  /** Steers the active run, or starts one with the session's settings. */
  async message(text: string, options: RequestOptions = {}): Promise<{ steered: true } | { steered: false; run: Run }> {
    const after = this.#seen;
    const answer = await this.#post<{ run_id?: string }>('message', this.#keyed(options, { text }));
    return answer.run_id === undefined ? { steered: true } : { steered: false, run: this.#run(answer.run_id, after) };
  }

  /** Ends the current step of the active run. False: none was active. */
  async interrupt(options: RequestOptions = {}): Promise<boolean> {
    const call = { ...requestOptions(options), body: {} };
    return (await this.#post<{ interrupted: boolean }>('interrupt', call)).interrupted;
  }

  /** Cancels the active run; the session stays usable. False: none was active. */
  async cancel(options: RequestOptions = {}): Promise<boolean> {
    const call = { ...requestOptions(options), body: { query: '/terminate' } };
    return (await this.#post<{ canceled: boolean }>('query', call)).canceled;
  }

  /** Runs a turn again in place of all that followed it, by default the last one. */
  async retry(options: RetryOptions = {}): Promise<Run> {
    const { fromTs: from_ts, text: edited_text, model } = options;
    return this.#recover(options, { action: 'retry', from_ts, edited_text, model });
  }

  /** Carries on where the last run stopped. */
  async continue(options: RequestOptions & { model?: string } = {}): Promise<Run> {
    return this.#recover(options, { action: 'continue', model: options.model });
  }

  /**
   * Answers a question of a run, whose `user_question` event names the call. `message`: that run had gone on or ended, so
   * the answer opened a new turn. `ABORTED` `question_decided`: it was answered or declined before.
   */
  async answer(
    callId: string,
    answers: readonly QuestionAnswer[],
    options: AnswerOptions = {},
  ): Promise<'run' | 'message'> {
    const { events } = await this.events(requestOptions(options));
    const asked = events.find((event) => event.type === 'user_question' && event.payload.call_id === callId);
    if (asked?.type !== 'user_question')
      throw new NotFoundError('question_not_found', `no run of session ${this.id} asks ${callId}`);
    const body = { call_token: asked.payload.call_token, answers, notes: options.notes };
    const action = `questions/${encodeURIComponent(callId)}/answer`;
    return (await this.#post<{ delivery: 'run' | 'message' }>(action, this.#keyed(options, body))).delivery;
  }

  /** Ends the session for good. Repeating it gives the first answer again. */
  terminate(options: RequestOptions = {}): Promise<Termination> {
    return this.#post('terminate', { ...requestOptions(options), body: {}, repeatable: true });
  }

  /** What the session is: where it works, with which model and tools. */
  spec(options: RequestOptions = {}): Promise<SessionSpec> {
    return this.transport.request('GET', this.#path('spec'), requestOptions(options));
  }

  /** Works in another project from the next run on. `FAILED_PRECONDITION` `ambiguous_project`: the name means several. */
  bind(project: string, options: RequestOptions = {}): Promise<SessionSpec> {
    return this.transport.request('PUT', this.#path('project'), this.#keyed(options, { project }));
  }

  summary(options: RequestOptions = {}): Promise<SessionSummary> {
    return this.#post('query', { ...requestOptions(options), body: { query: '/status' }, repeatable: true });
  }

  /** Stored events at once, without waiting for more. */
  async events(options: EventsOptions = {}): Promise<EventPage> {
    const { after, before, limit, truncate } = options;
    const call = { ...requestOptions(options), query: { after, before, limit, truncate } };
    const page = await this.transport.request<EventPage>('GET', this.#path('events'), call);
    return { ...page, events: (page.events as WireEvent[]).map(eventOf) };
  }

  /**
   * Events, deltas and states as they come, over as many connections as it takes. Ends when no run is active, with
   * `follow` when the session is terminated. An abort rejects with `CancelledError` (`aborted`); leaving the loop closes
   * quietly. `UNAUTHENTICATED`, `PERMISSION_DENIED` and `NOT_FOUND` reject; lost connections are only reported to
   * `onConnection`. With `follow` an idle session is asked again every second.
   */
  async *stream(options: StreamOptions = {}): AsyncGenerator<StreamItem, void, undefined> {
    for await (const item of new EventStream(this.transport, this.id, options).items()) {
      if (item.type !== 'session_state' && item.seq !== undefined) this.#note(item.seq, item.ts);
      yield item;
    }
  }

  async #recover(options: RequestOptions, body: object): Promise<Run> {
    const after = this.#seen;
    const answer = await this.#post<{ run_id?: string }>('recover', this.#keyed(options, body));
    return this.#run(answer.run_id, after);
  }

  #note(seq: number, ts: string): void {
    if (seq > (this.#seen?.seq ?? 0)) this.#seen = { seq, ts };
  }

  #run(id: string | undefined, after: Cursor | undefined): Run {
    if (id === undefined)
      throw new InternalError(
        'bad_answer',
        `session ${this.id} accepted a run without naming it: the gateway is too old`,
      );
    return new Run(this, id, after);
  }

  #path(action: string): string {
    return `/api/sessions/${encodeURIComponent(this.id)}/${action}`;
  }

  #post<T>(action: string, call: Call): Promise<T> {
    return this.transport.request('POST', this.#path(action), call);
  }

  #keyed(options: RequestOptions, body: object): Call {
    return withKey(this.transport, { ...requestOptions(options), body });
  }
}
