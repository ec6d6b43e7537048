import { commitKey, type CommitDocument, type Effect } from '@margay/log';
import type { Replica } from './replica';

/** A writer leaves its effects to the janitor after this. */
const OWN_MS = 1_500;
/** How long after its due time a mark is the janitor's. */
const SLACK_MS = 500;

/** Applies what commits owe to other rows: as their writer, and as the janitor for those who died. */
export class EffectsWorker {
  constructor(private readonly replica: Replica) {}

  start(): void {
    const { replica } = this;
    if (replica.world.has('effectsJanitor')) replica.spawn(() => this.sweepForEver());
  }

  /** Applies the effects of a commit that this replica stored, or gives up in time. */
  async apply(document: CommitDocument): Promise<void> {
    const { world } = this.replica;
    const startedMs = world.time.nowMs;
    while (world.time.nowMs - startedMs < OWN_MS) {
      try {
        return await this.applyAll(document);
      } catch {
        await this.replica.sleep(world.random.between(5, 60));
      }
    }
  }

  private async sweepForEver(): Promise<void> {
    const { replica } = this;
    const { world, store } = replica;
    for (;;) {
      await replica.sleep(world.random.between(800, 1_500));
      try {
        // Marks are compared with true time: a janitor's clock changes when they are redone, never whether.
        for (const id of await store.overdue(1_700_000_000_000 + world.time.nowMs - SLACK_MS)) {
          const document = await store.readNumber(world.sessionId, Number(id.split('.')[1]));
          if (!document) continue;
          world.count('effects redone');
          await this.applyAll(document);
        }
      } catch {
        // The store is away: the next sweep finds the marks again.
        world.count('sweep given up');
      }
    }
  }

  private async applyAll(document: CommitDocument): Promise<void> {
    for (const effect of document.effects) await this.applyOne(document, effect);
    if (document.effects.length > 0) await this.replica.store.clearDue(commitKey(document.sessionId, document.c));
  }

  private async applyOne(document: CommitDocument, effect: Effect): Promise<void> {
    const { store, world } = this.replica;
    const { c, head, sessionId } = document;
    const isOlder = (row: { c: number } | undefined): boolean =>
      row === undefined || row.c < c || !world.has('projectionGuard');
    if (effect.kind === 'session')
      await store.updateRow('sessions', sessionId, (row) => (isOlder(row) ? { c, head } : undefined));
    if (effect.kind !== 'run') return;
    const { runId, state, epoch, owner } = effect;
    await store.updateRow('runs', runId, (row) => (isOlder(row) ? { c, runId, state, epoch, owner } : undefined));
    if (state === 'queued') world.broker.publish({ kind: 'dispatch' });
  }
}
