import { ModelFailure, type ModelAnswer, type ModelFailureKind, type ModelTool } from '../ports';
import type { AgentRun } from './agent-run';
import { attemptCall, StepInterrupted } from './attempt';
import { DeltaStream } from './delta-stream';

export type Asked =
  | { kind: 'answered'; answer: ModelAnswer; model: string; durationMs: number }
  | { kind: 'interrupted'; text: string; model: string }
  | { kind: 'failed'; failure: ModelFailure; model: string; modelsTried: string[] };

const RETRY_SAME: ReadonlySet<ModelFailureKind> = new Set([
  'timeout',
  'connection',
  'server',
  'rate_limit',
  'empty_response',
  'unknown',
]);
/** No other model would take this request either. */
const FATAL: ReadonlySet<ModelFailureKind> = new Set(['permission', 'content_policy', 'bad_request']);

const RETRY_AFTER_MAX_MS = 60_000;

interface Question {
  step: number;
  tools: readonly ModelTool[];
  /** Number of the commit that holds the call's start. */
  stored: Promise<number>;
}

/** Asks the models of the run in turn until one answers: retries on the first, then one attempt at each other. */
export async function askModel(run: AgentRun, question: Question): Promise<Asked> {
  const { models, limits } = run;
  const deltas = new DeltaStream(run, question.step, question.stored);
  const tried: string[] = [];
  let failure = new ModelFailure('invalid_model', 'the run names no model');
  for (const [index, model] of models.entries()) {
    if (index > 0) announceFallback(run, question.step, tried.at(-1) ?? '', model, failure);
    tried.push(model);
    const asked = await askOne(run, question, model, index === 0 ? limits.attempts : 1, deltas);
    if (!(asked instanceof ModelFailure)) return asked;
    failure = asked;
    if (FATAL.has(failure.kind)) break;
  }
  return { kind: 'failed', failure, model: tried.at(-1) ?? '', modelsTried: tried };
}

async function askOne(
  run: AgentRun,
  { step, tools }: Question,
  model: string,
  attempts: number,
  deltas: DeltaStream,
): Promise<Asked | ModelFailure> {
  const { clock } = run.ports;
  for (let attempt = 1; ; attempt += 1) {
    const startedMs = clock.monotonicMs();
    try {
      deltas.restart();
      const answer = await attemptCall(run, run.request(model, tools), deltas);
      return { kind: 'answered', answer, model, durationMs: Math.round(clock.monotonicMs() - startedMs) };
    } catch (error) {
      if (error instanceof StepInterrupted) return { kind: 'interrupted', text: deltas.text, model };
      if (!(error instanceof ModelFailure)) throw error;
      if (attempt >= attempts || !RETRY_SAME.has(error.kind)) return error;
      if (await backOff(run, step, model, error, attempt, attempts)) return { kind: 'interrupted', text: '', model };
    }
  }
}

/** Waits before the next attempt. @returns whether it was interrupted */
async function backOff(
  run: AgentRun,
  step: number,
  model: string,
  failure: ModelFailure,
  attempt: number,
  attempts: number,
): Promise<boolean> {
  const { ports, limits } = run;
  const jitterMs = ports.ids.random() * Math.min(limits.backoffMaxMs, limits.backoffBaseMs * 2 ** (attempt - 1));
  const delayMs = Math.max(jitterMs, Math.min(failure.retryAfterMs ?? 0, RETRY_AFTER_MAX_MS));
  void run.writer.commit({
    events: [run.events.retry(step, model, failure, attempt, attempts, delayMs)],
    records: [],
  });
  const waiting = new AbortController();
  const wake = (): void => waiting.abort();
  const stopListening = run.onInterrupt(wake);
  run.stop.addEventListener('abort', wake, { once: true });
  await ports.clock.sleep(delayMs, waiting.signal);
  run.stop.removeEventListener('abort', wake);
  stopListening();
  run.stop.throwIfAborted();
  return waiting.signal.aborted;
}

function announceFallback(run: AgentRun, step: number, from: string, to: string, failure: ModelFailure): void {
  const reason = RETRY_SAME.has(failure.kind) ? 'retries_exhausted' : failure.kind;
  void run.writer.commit({ events: [run.events.fallback(step, from, to, failure, reason)], records: [] });
}
