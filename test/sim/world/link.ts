import type { SimProcess } from './sim-process';

interface End {
  process: SimProcess;
  life: number;
  /** Time at which the last message towards this end arrives: later ones do not overtake it. */
  arrivesAtMs: number;
  onClose: (() => void) | undefined;
}

/** A connection between two processes: in order, without loss, until it is closed; what is under way then may be lost. */
export class Link<One extends SimProcess = SimProcess, Other extends SimProcess = SimProcess> {
  isOpen = true;
  /** Whether what was under way when it closed still arrives. */
  private isDrained = false;
  private readonly ends: Map<SimProcess, End>;
  private readonly forget: (() => void)[];

  constructor(
    readonly one: One,
    readonly other: Other,
  ) {
    const end = (process: SimProcess): End => ({ process, life: process.life, arrivesAtMs: 0, onClose: undefined });
    this.ends = new Map<SimProcess, End>([
      [one, end(one)],
      [other, end(other)],
    ]);
    this.forget = [one, other].map((process) => process.onDeath(() => this.close()));
    if (!one.isAlive || !other.isAlive || one.isCutOff || other.isCutOff) this.close();
  }

  send(to: SimProcess, receive: () => void): void {
    const end = this.ends.get(to);
    if (!this.isOpen || !end) return;
    const { random, time, areFaultsOn } = to.world;
    const isLate = areFaultsOn && random.chance(0.005);
    const delayMs = random.between(0.1, 1) + (isLate ? random.between(10, 800) : 0);
    end.arrivesAtMs = Math.max(time.nowMs + delayMs, end.arrivesAtMs);
    time.atTime(end.arrivesAtMs, () =>
      to.enter(end.life, () => {
        if (this.isOpen || this.isDrained) receive();
      }),
    );
  }

  /** At most one listener per end. It is not called where that end's process has died. */
  onClose(at: SimProcess, listener: () => void): void {
    const end = this.ends.get(at);
    if (!end) return;
    end.onClose = listener;
    if (!this.isOpen) this.tell(end);
  }

  close(): void {
    if (!this.isOpen) return;
    this.isOpen = false;
    this.isDrained = this.one.world.random.chance(0.5);
    for (const forget of this.forget) forget();
    for (const end of this.ends.values()) this.tell(end);
  }

  private tell(end: End): void {
    const { world } = end.process;
    world.time.at(world.random.between(1, 40), () => end.process.enter(end.life, () => end.onClose?.()));
  }
}
