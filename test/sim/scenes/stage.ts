import type { Command } from '@margay/log';
import type { Cast } from '../cast';
import { question } from '../clients/people';
import type { RunLife } from '../runner/run-life';
import type { Role } from '../runner/plans';
import type { World } from '../world/world';
import { REST_MS, until } from './rest';

/** What scenes have in common: one session that may still be used, and somebody who asks it for things. */
export class Stage {
  /** Empty where every session is terminated. */
  readonly sessionId: string;

  constructor(
    readonly world: World,
    readonly cast: Cast,
  ) {
    this.sessionId = world.sessionIds.find((id) => !world.store.headOf(id)?.terminated) ?? '';
  }

  pass(ms: number): Promise<void> {
    return this.world.time.run(this.world.time.nowMs + ms, () => false);
  }

  /** A run of the given kind, driven by somebody. */
  async startRun(kind: Role): Promise<RunLife | undefined> {
    const { world, cast, sessionId } = this;
    const runId = `${sessionId}:r${(world.store.headOf(sessionId)?.runNo ?? 0) + 1}`;
    world.plans.cast(runId, kind);
    void cast.clients.rpc(sessionId, { kind: 'accept', commitId: kind, run: question(`${kind} question`) });
    return this.untilDriven(runId);
  }

  /** The life that drives a run, at an epoch above this one, once there is one. */
  async untilDriven(runId: string, aboveEpoch = 0): Promise<RunLife | undefined> {
    const find = (): RunLife | undefined => this.life(runId, aboveEpoch);
    const unmet = await until(this.world, REST_MS, () => (find() ? undefined : `run ${runId} is not driven`));
    if (unmet !== undefined) this.world.fail('stuck', unmet);
    return find();
  }

  life(runId: string, aboveEpoch = 0): RunLife | undefined {
    const lives = this.cast.runners.flatMap((runner) => [...runner.lives.values()]);
    return lives.find((life) => life.runId === runId && life.epoch > aboveEpoch && life.link && !life.isOver);
  }

  cancel(): void {
    const command: Command = { kind: 'cancel', commitId: 'cancel at last' };
    void this.cast.clients.rpc(this.sessionId, command);
  }
}
