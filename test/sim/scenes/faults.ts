import type { Sandbox } from '../sandbox/sandbox';
import type { Gateway } from '../streams/gateway';
import type { Executor } from '../sandbox/executor';
import type { Replica } from '../session/replica';
import type { Runner } from '../runner/runner';
import type { RunLife } from '../runner/run-life';
import type { SimProcess } from '../world/sim-process';
import type { World } from '../world/world';

const LOOK_EVERY_MS = 100;
const STOPPED_MAX_MS = 25_000;

interface Actors {
  replicas: Replica[];
  runners: Runner[];
  gateways: Gateway[];
  executors: Executor[];
}

/** Breaks something every second or so, until faults are switched off. */
export class Faults {
  constructor(
    private readonly world: World,
    private readonly actors: Actors,
  ) {}

  start(): void {
    const { world } = this;
    const { random } = world;
    world.time.at(random.between(100, world.isStress ? 800 : 1_500), () => {
      if (!world.areFaultsOn) return;
      this.strike();
      this.start();
    });
  }

  private strike(): void {
    const { actors, world } = this;
    const { random, store } = world;
    const strikes: [weight: number, strike: () => void][] = [
      [world.isStress ? 15 : 6, () => store.failOver()],
      [world.isStress ? 30 : 14, () => store.failOverDuringInsert(0.3)],
      [8, () => store.fallBehind()],
      [10, () => this.kill(random.pick(actors.replicas), 100, 4_000)],
      [5, () => this.shutDown(random.pick(actors.replicas))],
      [14, () => this.stop(random.pick(actors.replicas), 5, 6_000)],
      [12, () => this.kill(this.pickRunner(), 300, 6_000)],
      [8, () => this.stop(this.pickRunner(), 10, 9_000)],
      [6, () => this.stop(this.pickRunner(), 10_000, 25_000)],
      [6, () => this.stopUntilTaken(this.pickRunner())],
      [6, () => this.orphan(this.pickRunner())],
      [5, () => this.drain(this.pickRunner())],
      [5, () => random.pick(actors.runners).cutAttachment()],
      [6, () => this.silenceBroker()],
      [6, () => this.kill(random.pick(actors.gateways), 50, 2_000)],
      [4, () => this.stop(random.pick(actors.gateways), 5, 4_000)],
      [8, () => this.pickSandbox().lose()],
      [8, () => this.pickSandbox().killDaemon()],
      [8, () => this.kill(random.pick(actors.executors), 50, 3_000)],
      [5, () => this.stop(random.pick(actors.executors), 5, 9_000)],
      [6, () => this.turnClock(random.pick([...actors.replicas, ...actors.runners]))],
    ];
    let at = random.between(
      0,
      strikes.reduce((sum, [weight]) => sum + weight, 0),
    );
    for (const [weight, strike] of strikes) {
      at -= weight;
      if (at <= 0) return strike();
    }
  }

  /** Mostly one that drives a run. */
  private pickRunner(): Runner {
    const { random } = this.world;
    const busy = this.actors.runners.filter(({ lives, isAlive }) => isAlive && lives.size > 0);
    return random.pick(busy.length > 0 && random.chance(0.8) ? busy : this.actors.runners);
  }

  private drain(runner: Runner): void {
    runner.enter(runner.life, () => runner.drain());
  }

  private pickSandbox(): Sandbox {
    const { world } = this;
    return world.sandboxOf(world.random.pick(world.sessionIds));
  }

  private kill(process: SimProcess, fromMs: number, toMs: number): void {
    process.kill();
    this.world.time.at(this.world.random.between(fromMs, toMs), () => process.start());
  }

  private shutDown(replica: Replica): void {
    if (!replica.isAlive) return;
    const { random, time } = this.world;
    replica.onDeath(() => time.at(random.between(100, 3_000), () => replica.start()));
    replica.enter(replica.life, () => replica.shutDown());
  }

  private stop(process: SimProcess, fromMs: number, toMs: number): void {
    process.pause();
    this.world.time.at(this.world.random.between(fromMs, toMs), () => process.continue());
  }

  /** Stops a runner past its lease, until somebody else drives its run: its next commit is one of a fenced epoch. */
  private stopUntilTaken(runner: Runner): void {
    const life = [...runner.lives.values()][0];
    if (!life) return;
    runner.pause();
    this.whenTaken(life, () => runner.continue());
  }

  /** Kills a runner and stops the replica that has its commits, until somebody else drives the run. */
  private orphan(runner: Runner): void {
    const life = [...runner.lives.values()][0];
    const replica = life?.link?.other;
    if (!life || !replica) return;
    const { random, time } = this.world;
    time.at(random.between(0, 300), () => {
      replica.pause();
      this.kill(runner, 300, 6_000);
      this.whenTaken(life, () => replica.continue());
    });
  }

  private whenTaken(life: RunLife, then: () => void, sinceMs = this.world.time.nowMs): void {
    const { random, time } = this.world;
    const others = this.actors.runners.flatMap(({ lives }) => [...lives.values()]);
    const isTaken = others.some(({ runId, epoch, link }) => runId === life.runId && epoch > life.epoch && link);
    if (isTaken) time.at(random.between(0, 300), then);
    else if (time.nowMs - sinceMs > STOPPED_MAX_MS) then();
    else time.at(LOOK_EVERY_MS, () => this.whenTaken(life, then, sinceMs));
  }

  private silenceBroker(): void {
    const { broker, random, time } = this.world;
    broker.isUp = false;
    time.at(random.between(100, 5_000), () => (broker.isUp = true));
  }

  private turnClock(process: SimProcess): void {
    process.skewMs += this.world.random.between(-4_000, 1_000);
    this.world.trace(process.name, `its wall clock is set, now ${process.skewMs.toFixed(0)} ms ahead`);
  }
}
