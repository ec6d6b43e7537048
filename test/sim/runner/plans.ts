import type { World } from '../world/world';

export type Role = 'slow' | 'mail' | 'brief' | 'call';

/** The second loss is one too many; a third may be under way by then. */
const KILLS_MAX = 3;

/** What the model will do in each run: how many steps it takes is the same on every runner that drives it. */
export class Plans {
  /** Runs of scenes: their models think for half a minute, send a mail that takes long, answer at once, or make one call. */
  private readonly roles = new Map<string, Role>();
  private readonly steps = new Map<string, number>();
  private readonly kills = new Map<string, number>();
  private readonly killers = new Map<string, boolean>();

  constructor(private readonly world: World) {}

  cast(runId: string, role: Role): void {
    this.roles.set(runId, role);
    this.killers.set(runId, false);
    this.steps.set(runId, role === 'brief' ? 0 : 1);
  }

  roleOf(runId: string): Role | undefined {
    return this.roles.get(runId);
  }

  stepsOf(runId: string): number {
    const known = this.steps.get(runId) ?? this.world.random.integer(0, 5);
    this.steps.set(runId, known);
    return known;
  }

  /** A run that ends whatever process drives it. */
  isKiller(runId: string): boolean {
    const known = this.killers.get(runId) ?? (!this.roles.has(runId) && this.world.random.chance(0.015));
    this.killers.set(runId, known);
    return known;
  }

  /** Runners that this run has ended, and what was not meant to be ended with it. */
  killed(runId: string): void {
    const kills = (this.kills.get(runId) ?? 0) + 1;
    this.kills.set(runId, kills);
    if (kills > KILLS_MAX) this.world.fail('killed again', `${runId} has ended ${kills} runners`);
  }
}
