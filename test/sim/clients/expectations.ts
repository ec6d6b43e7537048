import { isCut, type Reader } from '../streams/reader';
import type { World } from '../world/world';

/** A stream that was opened after a run was acknowledged does not end before that run. */
export class Expectations {
  private readonly acceptedRuns = new Map<string, Set<string>>();
  private readonly atOpening = new Map<Reader, string[]>();

  constructor(private readonly world: World) {}

  accepted(sessionId: string, runId: string): void {
    const runs = this.acceptedRuns.get(sessionId) ?? new Set();
    this.acceptedRuns.set(sessionId, runs.add(runId));
  }

  opened(reader: Reader): void {
    this.atOpening.set(reader, [...(this.acceptedRuns.get(reader.sessionId) ?? [])]);
  }

  private isCut(sessionId: string, runId: string): boolean {
    const documents = this.world.store.documentsOf(sessionId);
    const cuts = documents.at(-1)?.head.cuts ?? [];
    const end = documents
      .flatMap(({ events }) => events)
      .find(({ frame }) => frame.includes('"type":"completion"') && frame.includes(`"run_id":"${runId}"`));
    return end !== undefined && isCut(cuts, end.seq);
  }

  ended(reader: Reader): void {
    for (const runId of this.atOpening.get(reader) ?? [])
      if (!reader.completed.has(runId) && !this.isCut(reader.sessionId, runId))
        this.world.fail('early end', `${reader.name} ended before ${runId} did`);
  }
}
