import type { runnersPb } from '@margay/contracts';

/**
 * Runs that nobody drives any more and whose log does not say so yet. They stay listed in heartbeats, so that nobody takes
 * them for merely missing, and are reported with each until they are revoked: then the log has moved on.
 */
export class LostRuns {
  private readonly byRun = new Map<string, runnersPb.RunDied>();

  add(lost: runnersPb.RunDied): void {
    this.byRun.set(lost.runId, lost);
  }

  /** @param epoch default: any */
  forget(runId: string, epoch?: number): void {
    if (epoch === undefined || this.byRun.get(runId)?.epoch === epoch) this.byRun.delete(runId);
  }

  all(): runnersPb.RunDied[] {
    return [...this.byRun.values()];
  }

  held(): runnersPb.HeldRun[] {
    return this.all().map(({ detail: _, ...run }) => run);
  }
}
