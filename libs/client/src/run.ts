import { NotFoundError } from '@margay/errors';
import type { StreamItem } from './events';
import type { StreamOptions } from './event-stream';
import type { Cursor } from './position';
import { RunOutcome, type RunResult } from './run-outcome';
import type { Session } from './session';

export type RunStreamOptions = Pick<StreamOptions, 'deltas' | 'signal' | 'onConnection'>;

export interface ResultOptions extends Pick<StreamOptions, 'signal' | 'onConnection'> {
  /** Also returns, with status `waiting`, when the run can only wait for a person. */
  returnWhenWaiting?: boolean;
}

/** A handle on one accepted run; it holds ids only. */
export class Run {
  #result: RunResult | undefined;

  constructor(
    readonly session: Session,
    /** `<session id>:r<number>`. */
    readonly id: string,
    /** A place before the run's first event; without it the session is read from its start. */
    private readonly after?: Cursor,
  ) {}

  /**
   * The run's events and deltas, and the session's states meanwhile, from the run's start to its completion. Each call
   * reads anew. Leaving the loop does not stop the run.
   */
  async *events(options: RunStreamOptions = {}): AsyncGenerator<StreamItem, void, undefined> {
    const outcome = new RunOutcome();
    let current: string | undefined;
    for await (const item of this.session.stream({ ...options, ...(this.after ? { after: this.after } : {}) })) {
      if (item.type === 'session_state') {
        yield item;
        continue;
      }
      if (item.type !== 'agent_message_delta') current = item.run_id;
      if ((item.run_id ?? current) !== this.id) continue;
      const result = outcome.apply(item);
      if (result) this.#result = result;
      yield item;
      if (result) return;
    }
  }

  /**
   * Waits for the run's end. A failed run is a result; this rejects only if the outcome cannot be learnt, e.g. with
   * `NOT_FOUND` (`run_outcome_unknown`) after a retry has cut the run out of the session.
   */
  async result(options: ResultOptions = {}): Promise<RunResult> {
    if (this.#result) return this.#result;
    const { returnWhenWaiting = false, ...stream } = options;
    const outcome = new RunOutcome();
    for await (const item of this.events({ ...stream, deltas: false })) {
      if (item.type !== 'session_state') outcome.apply(item);
      else if (returnWhenWaiting && item.waiting) return outcome.waiting();
    }
    if (this.#result) return this.#result;
    throw new NotFoundError(
      'run_outcome_unknown',
      `session ${this.session.id} holds no completion of run ${this.id}: it may have been cut by a retry or a rewind`,
    );
  }
}
