import type { Head } from '@margay/log';
import type { Link } from '../world/link';
import { dueOf } from './effects-worker';
import type { Replica } from './replica';
import type { Runner } from '../runner/runner';
import type { RunnerRow, RunRow } from '../store/sim-store';

/** A runner whose beat has not moved for this long is lost. */
const LEASE_MS = 15_000;
/** How long a runner has to attach elsewhere after its stream closed. */
const REATTACH_MS = 2_000;
/** Rows younger than this may not be listed by their runner yet. */
const UNLISTED_AFTER_MS = 5_000;

interface Attached {
  runner: Runner;
  link: Link;
  generation: number;
}

/** Gives queued runs to the runners attached here, and takes runs from runners that are lost. */
export class Dispatcher {
  private readonly attached = new Map<string, Attached>();
  /** Beats as this replica saw them move, on its own monotonic clock. */
  private readonly beats = new Map<string, { beat: number; sinceMs: number }>();
  /** Rows seen running at an epoch, and the beat in which their runner did not list them. */
  private readonly running = new Map<string, { sinceMs: number; missingAtBeat: number | undefined }>();

  constructor(private readonly replica: Replica) {}

  start(): void {
    const { replica } = this;
    replica.spawn(() => this.pollForEver());
    replica.world.broker.subscribe(replica, { subjects: ['dispatch'] }, (message) => {
      if (message.kind === 'dispatch') replica.spawn(() => this.dispatch());
    });
  }

  /** A runner opens its stream. */
  attach(runner: Runner, link: Link): void {
    const { replica } = this;
    const name = runner.instance;
    replica.spawn(async () => {
      const row = await replica.store.persist(() =>
        replica.store.updateRow('runners', name, (before) => ({
          beat: (before?.beat ?? 0) + 1,
          generation: (before?.generation ?? 0) + 1,
          isLost: false,
          listed: before?.listed ?? [],
        })),
      );
      const attached: Attached = { runner, link, generation: row.generation };
      // One that closed meanwhile must not take the place of the stream that the runner has opened since.
      if (!link.isOpen) return;
      this.attached.set(name, attached);
      link.onClose(replica, () => this.onClosed(name, attached));
    });
  }

  heartbeat(runner: Runner, link: Link, listed: string[]): void {
    const { replica } = this;
    const name = runner.instance;
    replica.spawn(async () => {
      // Answered without the store: a runner works on while that is away.
      link.send(runner, () => runner.onBeatAnswered());
      await replica.store
        .updateRow('runners', name, (row) => (row ? { ...row, beat: row.beat + 1, isLost: false, listed } : undefined))
        .catch(() => replica.world.count('beat not stored'));
    });
  }

  private onClosed(name: string, attached: Attached): void {
    const { replica } = this;
    if (this.attached.get(name) === attached) this.attached.delete(name);
    replica.after(REATTACH_MS, () =>
      replica.spawn(async () => {
        await replica.store.persist(() =>
          replica.store.updateRow('runners', name, (row) =>
            row && (row.generation === attached.generation || !replica.world.has('generationGuard'))
              ? { ...row, isLost: true }
              : undefined,
          ),
        );
      }),
    );
  }

  private async pollForEver(): Promise<void> {
    const { replica } = this;
    for (;;) {
      await replica.sleep(replica.world.random.between(700, 1_300));
      await this.look();
    }
  }

  /** At the queue, at questions whose time is over, and at the runners of what runs. */
  private async look(): Promise<void> {
    const { effects, store, world } = this.replica;
    try {
      const runs = (await store.rows('runs')).map(([, row]) => row);
      if (world.has('pollQueue')) await this.dispatch(runs);
      const running = runs.filter(({ state }) => state === 'running');
      if (running.length > 0) await this.watchRunners(running);
      await effects.expireQuestions(runs);
    } catch {
      // While the store is away nobody's beat can move: the count starts afresh.
      if (world.has('outageCountsForNobody')) this.beats.clear();
    }
  }

  private async dispatch(rows?: RunRow[]): Promise<void> {
    const { world, store } = this.replica;
    const free = [...this.attached.values()].filter(({ link }) => link.isOpen);
    if (free.length === 0) return;
    const known = rows ?? (await store.rows('runs').catch(() => [])).map(([, row]) => row);
    for (const row of known) if (row.state === 'queued') await this.claim(row, world.random.pick(free));
  }

  private async claim(row: RunRow, { runner, link }: Attached): Promise<void> {
    const { replica } = this;
    const { world } = replica;
    const owner = runner.instance;
    const { sessionId, runId, epoch } = row;
    const outcome = await replica.submit(
      sessionId,
      { kind: 'claim', commitId: world.nextId('claim'), runId, epoch, owner },
      3_000,
    );
    if ('failed' in outcome) return;
    if (!outcome.ok) return this.correctRow(row, outcome.head);
    const isIsolated = outcome.head.run?.isolated === true && world.has('isolatesSuspects');
    const assigned = { sessionId, runId, epoch: Number(outcome.answer.epoch), c: outcome.c, isIsolated };
    if (world.areFaultsOn && world.random.chance(0.06)) return world.count('assignment lost');
    link.send(runner, () => runner.onAssigned(assigned));
    if (world.areFaultsOn && world.random.chance(0.1))
      replica.after(world.random.between(10, 12_000), () => link.send(runner, () => runner.onAssigned(assigned)));
  }

  /** A claim refused on a fresh head shows that the row is behind: it is rewritten from that head. */
  private async correctRow({ sessionId, runId }: RunRow, head: Head): Promise<void> {
    const { store } = this.replica;
    const run = head.run?.id === runId ? head.run : undefined;
    const { c, epoch } = head;
    await store
      .updateRow('runs', runId, (row) =>
        row && row.c < c
          ? {
              c,
              sessionId,
              runId,
              state: run?.state ?? 'done',
              epoch,
              owner: run?.owner ?? null,
              dueTs: dueOf(head, runId),
            }
          : undefined,
      )
      .catch(() => undefined);
  }

  private async watchRunners(running: RunRow[]): Promise<void> {
    const runners = new Map(await this.replica.store.rows('runners'));
    for (const row of running) this.watchRun(row, runners.get(row.owner ?? ''));
  }

  private watchRun(row: RunRow, runner: RunnerRow | undefined): void {
    const { world } = this.replica;
    const isLost = world.has('takeover') && (!runner || runner.isLost || this.isSilent(row.owner ?? '', runner));
    const isUnlisted = runner !== undefined && world.has('missingFromBeats') && this.isUnlisted(row, runner);
    if (!isLost && !isUnlisted) return;
    const { sessionId, runId, epoch } = row;
    const cause = !isLost ? 'unlisted' : runner?.isLost ? 'crash' : 'lease';
    this.replica.spawn(async () => {
      const commitId = world.nextId('takeover');
      const outcome = await this.replica.submit(sessionId, { kind: 'takeover', commitId, runId, epoch, cause }, 3_000);
      if (!('failed' in outcome) && !outcome.ok) await this.correctRow(row, outcome.head);
    });
  }

  private isSilent(name: string, { beat }: RunnerRow): boolean {
    const { nowMs } = this.replica.world.time;
    const seen = this.beats.get(name);
    if (seen?.beat === beat) return nowMs - seen.sinceMs > LEASE_MS;
    this.beats.set(name, { beat, sinceMs: nowMs });
    return false;
  }

  /** Whether the runner's last two beats did not list a run that it was given a while ago. */
  private isUnlisted({ runId, epoch }: RunRow, { beat, listed }: RunnerRow): boolean {
    const { nowMs } = this.replica.world.time;
    const key = `${runId} ${epoch}`;
    const seen = this.running.get(key) ?? { sinceMs: nowMs, missingAtBeat: undefined };
    this.running.set(key, seen);
    if (listed.includes(key) || nowMs - seen.sinceMs < UNLISTED_AFTER_MS) {
      seen.missingAtBeat = undefined;
      return false;
    }
    seen.missingAtBeat ??= beat;
    return seen.missingAtBeat !== beat;
  }
}
