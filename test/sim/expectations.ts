import type { Reader } from './reader';
import type { World } from './world';

/** What the model will do in each run: the same on every runner that drives it. */
export class Plans {
  /** A run whose model thinks for half a minute. */
  slowRunId: string | undefined;
  private readonly steps = new Map<string, number>();

  constructor(private readonly world: World) {}

  stepsOf(runId: string): number {
    const known = this.steps.get(runId) ?? this.world.random.integer(0, 7);
    this.steps.set(runId, known);
    return known;
  }

  isSlow(runId: string): boolean {
    return this.slowRunId === runId;
  }
}

/** A stream that was opened after a run was acknowledged does not end before that run. */
export class Expectations {
  private readonly acceptedRuns = new Set<string>();
  private readonly atOpening = new Map<Reader, string[]>();

  constructor(private readonly world: World) {}

  accepted(runId: string): void {
    this.acceptedRuns.add(runId);
  }

  opened(reader: Reader): void {
    this.atOpening.set(reader, [...this.acceptedRuns]);
  }

  ended(reader: Reader): void {
    for (const runId of this.atOpening.get(reader) ?? [])
      if (!reader.completed.has(runId)) this.world.fail('early end', `${reader.name} ended before ${runId} did`);
  }
}
