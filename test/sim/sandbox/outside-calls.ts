import type { StoreClient } from '../store/store-client';
import type { ToolCallRow } from '../store/sim-store';
import type { Executor, ExecutorAnswer, ToolCall } from './executor';

const BEAT_MS = 1_000;
/** A caller whose beat stands still for so long on the observer's clock is gone. */
const GONE_AFTER_MS = 5_000;
const LOOK_EVERY_MS = 500;
const LONG_MS = 12_000;

/** Effects that no journal knows of, e.g. a mail: a row in the store says that the call was sent before it is. */
export class OutsideCalls {
  private readonly mine = new Map<string, Promise<ExecutorAnswer>>();

  constructor(
    private readonly executor: Executor,
    private readonly store: StoreClient,
  ) {}

  execute(call: ToolCall): Promise<ExecutorAnswer> {
    const known = this.mine.get(call.callId);
    if (known) return known;
    const made = this.guarded(call).then((answer) => {
      // Refused for its owner, not for those to come.
      if (answer.kind === 'stale') this.mine.delete(call.callId);
      return answer;
    });
    this.mine.set(call.callId, made);
    return made;
  }

  private async guarded(call: ToolCall): Promise<ExecutorAnswer> {
    const { world, instance } = this.executor;
    if (!world.sandboxOf(call.sessionId).isCurrent(call.epoch)) return { kind: 'stale' };
    if (!world.has('outsideGuard')) return finished('ok', await this.perform(call));
    for (;;) {
      const row = await this.change(
        call,
        (before) => before ?? { state: 'sent', process: instance, beat: 0, text: '' },
      );
      if (row.state !== 'sent') return finished(row.state, row.text);
      if (row.process === instance) return this.send(call);
      await this.untilGone(call, row);
      const after = await this.change(call, (now) => this.inherit(call, now));
      if (after.state !== 'sent') return finished(after.state, after.text);
    }
  }

  /** What becomes of a call whose sender is gone: a keyed one is sent again, of another nobody knows. */
  private inherit({ effect }: ToolCall, row: ToolCallRow | undefined): ToolCallRow | undefined {
    const { instance, world } = this.executor;
    if (!row || row.state !== 'sent' || row.process === instance) return undefined;
    if (effect === 'keyed' || !world.has('outsideUnknown')) return { ...row, process: instance, beat: 0 };
    return { ...row, state: 'unknown', text: 'its sender is gone' };
  }

  private async send(call: ToolCall): Promise<ExecutorAnswer> {
    const { instance } = this.executor;
    let isOver = false;
    const beat = (): void => {
      this.executor.after(BEAT_MS, () => {
        if (isOver) return;
        const raise = (row: ToolCallRow | undefined): ToolCallRow | undefined =>
          row?.process === instance ? { ...row, beat: row.beat + 1 } : undefined;
        void this.store.updateRow('toolCalls', call.callId, raise).catch(() => this.executor.world.count('beat lost'));
        beat();
      });
    };
    beat();
    const text = await this.perform(call);
    // Whoever took over meanwhile has the last word.
    const row = await this.change(call, (now) =>
      now?.state === 'sent' && now.process === instance ? { ...now, state: 'ok', text } : undefined,
    );
    isOver = true;
    return row.state === 'sent' ? this.guarded(call) : finished(row.state, row.text);
  }

  private async untilGone({ callId }: ToolCall, first: ToolCallRow): Promise<void> {
    const { executor } = this;
    const { time } = executor.world;
    if (!executor.world.has('waitsWhileSenderBeats')) return;
    let last = first;
    let sinceMs = time.nowMs;
    while (time.nowMs - sinceMs < GONE_AFTER_MS) {
      await executor.sleep(LOOK_EVERY_MS);
      const row = await this.store.persist(() => this.store.row('toolCalls', callId));
      if (!row || row.state !== 'sent') return;
      if (row.beat !== last.beat || row.process !== last.process) sinceMs = time.nowMs;
      last = row;
    }
  }

  private async perform({ callId, effect, epoch, argumentsText }: ToolCall): Promise<string> {
    const { executor } = this;
    const { effects, random } = executor.world;
    const execution = effects.start({ callId, effect, epoch, incarnation: undefined });
    const isLong = argumentsText.includes('long');
    await executor.sleep(isLong ? LONG_MS : random.chance(0.2) ? random.between(500, 5_000) : random.between(1, 100));
    effects.takeEffect(execution);
    await executor.sleep(random.between(1, 50));
    return execution.text;
  }

  private change(
    { callId }: ToolCall,
    change: (row: ToolCallRow | undefined) => ToolCallRow | undefined,
  ): Promise<ToolCallRow> {
    return this.store.persist(() => this.store.updateRow('toolCalls', callId, change));
  }
}

function finished(status: 'ok' | 'unknown', text: string): ExecutorAnswer {
  return { kind: 'finished', status, text, incarnation: '' };
}
