import type { World } from '../world/world';
import { Sandboxd } from './sandboxd';

/** What of one session's sandbox outlives any process: its record, and the incarnation that is there, if any. */
export class Sandbox {
  daemon: Sandboxd | undefined;
  /** Highest epoch that a fence or a claim has named. */
  private recordedEpoch = 0;
  private incarnations = 0;
  private claiming: Promise<Sandboxd> | undefined;

  constructor(
    private readonly world: World,
    readonly sessionId: string,
  ) {}

  isCurrent(epoch: number): boolean {
    return epoch >= this.recordedEpoch || !this.world.has('lowerEpochRefused');
  }

  note(epoch: number): void {
    this.recordedEpoch = Math.max(this.recordedEpoch, epoch);
  }

  /** The daemon, started anew where it or its sandbox is gone. Callers share one claim. */
  obtain(epoch: number): Promise<Sandboxd> {
    this.note(epoch);
    if (this.daemon?.isUp) return Promise.resolve(this.daemon);
    this.claiming ??= new Promise((resolve) => {
      const { random, time } = this.world;
      time.at(random.between(2, random.chance(0.1) ? 1_500 : 60), () => {
        this.claiming = undefined;
        resolve(this.claim());
      });
    });
    return this.claiming;
  }

  async fence(epoch: number, kill: boolean): Promise<void> {
    this.note(epoch);
    await this.claiming;
    // What died has nothing to end, and the next life starts with the record's epoch.
    if (this.daemon?.isUp) await this.daemon.fence(epoch, kill);
    this.world.effects.fenced(this.sessionId, epoch, kill);
  }

  /** All of it is gone: processes, journal, and the epoch that it had seen. */
  lose(): void {
    if (!this.world.has('recordKeepsEpoch')) this.recordedEpoch = 0;
    if (!this.daemon) return;
    this.world.count('sandbox lost');
    this.world.trace('sandbox', `${this.daemon.incarnation} is lost`);
    const { daemon } = this;
    this.daemon = undefined;
    daemon.die();
  }

  killDaemon(): void {
    if (!this.daemon?.isUp) return;
    this.world.count('sandboxd killed');
    this.world.trace('sandbox', `the daemon of ${this.daemon.incarnation} dies`);
    this.daemon.die();
  }

  private claim(): Sandboxd {
    if (!this.daemon) {
      this.daemon = new Sandboxd(this.world, `${this.sessionId}/box${++this.incarnations}`, this.recordedEpoch);
      this.world.trace('sandbox', `${this.daemon.incarnation} starts`);
    } else if (!this.daemon.isUp) this.daemon.comeUp(this.recordedEpoch);
    return this.daemon;
  }
}
