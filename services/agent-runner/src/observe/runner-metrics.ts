import { LabelLimit } from '@margay/platform';
import { Counter, Histogram, type Registry } from 'prom-client';

const OVERHEAD_SECONDS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5];
const CALL_SECONDS = [0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900];
/** Models are named by people, tools also by their plugins: so many of each have a series of their own. */
const MODELS_MAX = 100;
const TOOLS_MAX = 300;

export type TokenKind = 'input' | 'output' | 'cache_read' | 'cache_creation' | 'reasoning';

/** What a runner measures of the runs it drives. */
export class RunnerMetrics {
  private readonly stepOverhead: Histogram;
  private readonly modelCalls: Histogram<'provider' | 'model' | 'outcome'>;
  private readonly firstToken: Histogram<'model'>;
  private readonly tokens: Counter<'model' | 'kind'>;
  private readonly toolCalls: Histogram<'tool' | 'effect' | 'status'>;
  private readonly unknownOutcomes: Counter<'cause'>;
  private readonly isolatedRuns: Counter<'outcome'>;
  private readonly models = new LabelLimit(MODELS_MAX);
  private readonly tools = new LabelLimit(TOOLS_MAX);

  constructor(registry: Registry) {
    const registers = [registry];
    this.stepOverhead = new Histogram({
      name: 'margay_step_overhead_seconds',
      help: 'From an answer with tool calls to the next model call, less the time in which tools ran',
      buckets: OVERHEAD_SECONDS,
      registers,
    });
    this.modelCalls = new Histogram({
      name: 'margay_model_call_duration_seconds',
      help: 'Model calls, each attempt by itself',
      labelNames: ['provider', 'model', 'outcome'],
      buckets: CALL_SECONDS,
      registers,
    });
    this.firstToken = new Histogram({
      name: 'margay_model_first_token_seconds',
      help: 'From a model call to the first piece of its answer',
      labelNames: ['model'],
      buckets: CALL_SECONDS,
      registers,
    });
    this.tokens = new Counter({
      name: 'margay_tokens_total',
      help: 'Tokens as the provider counts them',
      labelNames: ['model', 'kind'],
      registers,
    });
    this.toolCalls = new Histogram({
      name: 'margay_tool_call_duration_seconds',
      help: 'Tool calls as the runner sees them, waiting for a sandbox included',
      labelNames: ['tool', 'effect', 'status'],
      buckets: CALL_SECONDS,
      registers,
    });
    this.unknownOutcomes = new Counter({
      name: 'margay_tool_unknown_outcomes_total',
      help: 'Tool calls of which nobody knows whether they took effect',
      labelNames: ['cause'],
      registers,
    });
    this.isolatedRuns = new Counter({
      name: 'margay_isolated_runs_total',
      help: 'Runs in processes of their own that have left, by how; calls made there are not in the other metrics',
      labelNames: ['outcome'],
      registers,
    });
  }

  overhead(seconds: number): void {
    this.stepOverhead.observe(seconds);
  }

  modelCall(call: { provider: string; model: string; outcome: string; seconds: number }): void {
    const { provider, model, outcome, seconds } = call;
    this.modelCalls.observe({ provider, model: this.models.of(model), outcome }, seconds);
  }

  firstPiece(model: string, seconds: number): void {
    this.firstToken.observe({ model: this.models.of(model) }, seconds);
  }

  spent(model: string, kind: TokenKind, count: number): void {
    if (count > 0) this.tokens.inc({ model: this.models.of(model), kind }, count);
  }

  toolCall(call: { tool: string; effect: string; status: string; seconds: number }): void {
    const { tool, effect, status, seconds } = call;
    this.toolCalls.observe({ tool: this.tools.of(tool), effect, status }, seconds);
  }

  /** A run that was driven in a process of its own has left this runner. */
  isolatedEnded(outcome: string): void {
    this.isolatedRuns.inc({ outcome });
  }

  unknownOutcome(cause: string): void {
    this.unknownOutcomes.inc({ cause });
  }
}
