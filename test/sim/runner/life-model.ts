import { askUserQuestion, Model, ModelFailure, type ModelAnswer, type ModelRequest } from '@margay/engine';
import type { RunLife } from './run-life';
import { TOOLS } from './tool-box';

const SLICE_MS = 120;
const BRIEF_MS = 2_500;
const USAGE = { inputTokens: 10, outputTokens: 5, cacheReadTokens: 0, cacheCreationTokens: 0, reasoningTokens: 0 };

/** A model that thinks for a while, says something in pieces, and asks for tools until its run's plan is done. */
export class LifeModel extends Model {
  constructor(private readonly life: RunLife) {
    super();
  }

  override get defaultModel(): string {
    return 'model';
  }

  async call(
    request: ModelRequest,
    { signal, onText }: { signal: AbortSignal; onText: (text: string) => void },
  ): Promise<ModelAnswer> {
    const { life } = this;
    const { world } = life.runner;
    const { random } = world;
    const step = life.nextStep;
    world.prompts.ask(life.runId, life.epoch, step, request);
    if (world.plans.isKiller(life.runId)) return this.kill();
    const said = `thought of ${life.runId} `;
    onText(said);
    await this.think(signal, onText);
    if (world.areFaultsOn && random.chance(0.04)) throw new ModelFailure('server', 'the model has a bad moment');
    const isLast = step > world.plans.stepsOf(life.runId) || request.tools.length === 0;
    const isCast = world.plans.roleOf(life.runId) !== undefined;
    const wanted = isLast ? 0 : isCast ? 1 : random.chance(0.1) ? 0 : random.integer(1, 3);
    const toolCalls = Array.from({ length: wanted }, (_, index) => ({
      providerCallId: `call_${index}`,
      ...this.wish(),
    }));
    const text = `${said}at step ${step}${'long '.repeat(step * 10)}`;
    return { model: 'model', text, toolCalls, usage: USAGE, finishReason: wanted > 0 ? 'tool_calls' : 'stop' };
  }

  private wish(): { name: string; argumentsText: string } {
    const { world } = this.life.runner;
    const { random } = world;
    const role = world.plans.roleOf(this.life.runId);
    if (role !== undefined) return { name: role === 'mail' ? 'mail' : 'look', argumentsText: '{"n":"long"}' };
    if (!random.chance(0.06))
      return { name: random.pick(TOOLS).tool_id, argumentsText: JSON.stringify({ n: world.nextId('n') }) };
    const limit = random.chance(0.5) ? { timeout_seconds: random.integer(1, 8) } : {};
    const questions = [{ header: 'Which', question: world.nextId('Which one? ') }];
    return { name: askUserQuestion.tool_id, argumentsText: JSON.stringify({ questions, ...limit }) };
  }

  /** Eats the memory of whatever process it is in. */
  private kill(): Promise<never> {
    const { life } = this;
    const { runner, assignment } = life;
    const { world } = runner;
    world.count(assignment.isIsolated ? 'process apart killed by its run' : 'runner killed by its run');
    if (assignment.isIsolated) life.die();
    else {
      world.plans.killed(life.runId);
      runner.kill();
      world.time.at(world.random.between(300, 3_000), () => runner.start());
    }
    return new Promise(() => undefined);
  }

  /** Rejects with the signal's reason as soon as that aborts. */
  private async think(signal: AbortSignal, onText: (text: string) => void): Promise<void> {
    const { life } = this;
    const { random, time, plans } = life.runner.world;
    const role = plans.roleOf(life.runId);
    const isSlow = role === 'slow';
    const usualMs = random.between(10, random.chance(0.1) ? 3_000 : 150);
    const endMs = time.nowMs + (isSlow ? 30_000 : role === 'brief' || role === 'call' ? BRIEF_MS : usualMs);
    while (time.nowMs < endMs) {
      await life.clock.sleep(Math.min(isSlow ? 500 : SLICE_MS, endMs - time.nowMs), signal);
      signal.throwIfAborted();
      life.sawModelAt(time.nowMs);
      if (random.chance(0.5)) onText('well ');
    }
  }
}
