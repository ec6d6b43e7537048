import type { AttachedRunner } from './attached-runner';

/** The runners whose `Attach` streams end at this replica. */
export class AttachedRunners {
  private readonly runners = new Map<string, AttachedRunner>();

  add(runner: AttachedRunner): void {
    this.runners.set(runner.instance, runner);
  }

  /** @returns false where the runner attached again meanwhile */
  remove(runner: AttachedRunner): boolean {
    return this.has(runner) && this.runners.delete(runner.instance);
  }

  /** Whether this is the runner's present attachment. */
  has(runner: AttachedRunner): boolean {
    return this.runners.get(runner.instance) === runner;
  }

  /** The runner that holds this run, if it is attached here. */
  holderOf(runId: string): AttachedRunner | undefined {
    return [...this.runners.values()].find(({ held }) => held.some((run) => run.runId === runId));
  }

  /** The runner of a pool with most free slots, if one has any. */
  freest(pool: string, except?: AttachedRunner): AttachedRunner | undefined {
    let best: AttachedRunner | undefined;
    for (const runner of this.runners.values())
      if (runner !== except && runner.pool === pool && runner.free > (best?.free ?? 0)) best = runner;
    return best;
  }

  /** @returns pools in which a slot became free: the run was there, and not with the owner that it has now */
  onRunLeft(runId: string, owner: string | null): string[] {
    return [...this.runners.values()]
      .filter((runner) => runner.instance !== owner && runner.onRunLeft(runId))
      .map(({ pool }) => pool);
  }

  slots(pool: string): { free: number; held: number } {
    const runners = [...this.runners.values()].filter((runner) => runner.pool === pool);
    return {
      free: runners.reduce((sum, { free }) => sum + free, 0),
      held: runners.reduce((sum, { held }) => sum + held.length, 0),
    };
  }

  hangUp(): void {
    for (const runner of this.runners.values()) runner.hangUp();
  }
}
