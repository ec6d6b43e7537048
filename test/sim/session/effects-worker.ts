import { commitKey, type CommitDocument, type Effect, type Head } from '@margay/log';
import type { RunRow } from '../store/sim-store';
import { ProcessClock } from '../world/sim-process';
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
          const document = await this.read(id);
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

  /** Times questions out, whether their run waits, is queued, or is driven. */
  async expireQuestions(rows: readonly RunRow[]): Promise<void> {
    if (!this.replica.world.has('questionsExpire')) return;
    const nowTs = new ProcessClock(this.replica).nowMicros();
    for (const { dueTs, sessionId } of rows) if (dueTs !== null && dueTs <= nowTs) await this.expire(sessionId, nowTs);
  }

  private async expire(sessionId: string, nowTs: number): Promise<void> {
    const { questions = [] } = await this.replica.readHead(sessionId);
    for (const { callId, expiresTs } of questions)
      if (expiresTs !== null && expiresTs <= nowTs)
        await this.replica.submit(sessionId, { kind: 'expire', commitId: `expire.${callId}`, callId }, 3_000);
  }

  private read(id: string): Promise<CommitDocument | undefined> {
    const [sessionId = '', c] = id.split('.');
    return this.replica.store.readNumber(sessionId, Number(c));
  }

  private async applyAll(document: CommitDocument): Promise<void> {
    const { store, world } = this.replica;
    const clear = (): Promise<void> => store.clearDue(commitKey(document.sessionId, document.c));
    if (document.effects.length === 0) return;
    if (!world.has('markClearedLast')) await clear();
    for (const effect of document.effects) await this.applyOne(document, effect);
    await clear();
  }

  private async applyOne(document: CommitDocument, effect: Effect): Promise<void> {
    const { store, world } = this.replica;
    const { c, head, sessionId } = document;
    const isOlder = (row: { c: number } | undefined): boolean =>
      row === undefined || row.c < c || !world.has('projectionGuard');
    if (effect.kind === 'session')
      await store.updateRow('sessions', sessionId, (row) => (isOlder(row) ? { c, head } : undefined));
    if (effect.kind === 'fence' && world.has('fenceEffect'))
      await this.replica.reach(world.sandboxOf(sessionId).fence(effect.epoch, effect.kill));
    if (effect.kind !== 'run') return;
    const dueTs = dueOf(head, effect.runId);
    const { runId, state, epoch, owner } = effect;
    await store.updateRow('runs', runId, (row) =>
      isOlder(row) ? { c, sessionId, runId, state, epoch, owner, dueTs } : undefined,
    );
    if (state === 'queued') world.broker.publish({ kind: 'dispatch' });
  }
}

/** When the first question of this run that is limited in time ends. */
export function dueOf(head: Head, runId: string): number | null {
  const times = (head.run?.id === runId ? (head.questions ?? []) : []).map(({ expiresTs }) => expiresTs ?? Infinity);
  const first = Math.min(...times);
  return Number.isFinite(first) ? first : null;
}
