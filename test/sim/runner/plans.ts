import type { World } from '../world/world';

/** What the model will do in each run: how many steps it takes is the same on every runner that drives it. */
export class Plans {
  /** A run whose model thinks for half a minute. */
  slowRunId: string | undefined;
  private readonly steps = new Map<string, number>();
  private readonly killers = new Map<string, boolean>();

  constructor(private readonly world: World) {}

  stepsOf(runId: string): number {
    const known = this.steps.get(runId) ?? this.world.random.integer(0, 5);
    this.steps.set(runId, known);
    return known;
  }

  /** A run that ends whatever process drives it. */
  isKiller(runId: string): boolean {
    const known = this.killers.get(runId) ?? (!this.isSlow(runId) && this.world.random.chance(0.015));
    this.killers.set(runId, known);
    return known;
  }

  isSlow(runId: string): boolean {
    return this.slowRunId === runId;
  }
}
