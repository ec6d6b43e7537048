import { Link } from '../world/link';
import type { Executor } from '../sandbox/executor';
import type { Replica } from '../session/replica';
import { RunLife } from './run-life';
import { SimProcess } from '../world/sim-process';
import type { World } from '../world/world';

const HEARTBEAT_MS = 5_000;
/** A runner that hears nothing for this long stops its runs by itself. */
const SELF_FENCE_MS = 10_000;
const BACK_OFF_MAX_MS = 1_000;

export interface Assignment {
  sessionId: string;
  runId: string;
  epoch: number;
  /** Number of the claim's commit. */
  c: number;
  /** It goes into a process of its own. */
  isIsolated: boolean;
}

/** Drives runs that the dispatcher assigns to it. */
export class Runner extends SimProcess {
  readonly lives = new Map<string, RunLife>();
  /** Random per process start in the real thing. */
  instance = '';
  private readonly everHeld = new Set<string>();
  private attachment: { link: Link; replica: Replica } | undefined;
  private answeredAtMs = 0;
  /** When the present stream was opened. */
  private connectedAtMs = 0;

  constructor(
    world: World,
    name: string,
    readonly replicas: readonly Replica[],
    readonly executors: readonly Executor[],
  ) {
    super(world, name);
  }

  boot(): void {
    this.instance = `${this.name}#${this.life}`;
    this.lives.clear();
    this.everHeld.clear();
    this.answeredAtMs = this.world.time.nowMs;
    this.spawn(() => this.attachForEver());
    this.spawn(() => this.beatForEver());
  }

  onBeatAnswered(): void {
    this.answeredAtMs = this.world.time.nowMs;
  }

  onAssigned(assignment: Assignment): void {
    const { world } = this;
    const key = `${assignment.runId} ${assignment.epoch}`;
    if (this.everHeld.has(key) && world.has('oneEpochOneLife')) {
      if (!this.lives.has(key)) this.refuse(assignment);
      return;
    }
    this.everHeld.add(key);
    const life = new RunLife(this, assignment);
    this.lives.set(key, life);
    this.spawn(async () => {
      await life.drive();
      if (this.lives.get(key) === life) this.lives.delete(key);
    });
  }

  /** Gives its runs back, as on SIGTERM. */
  drain(): void {
    for (const life of this.lives.values()) life.stop('drained');
  }

  /** The process of an isolated run is gone. */
  onDied({ sessionId, runId, epoch }: RunLife): void {
    const { world, attachment } = this;
    attachment?.link.send(attachment.replica, () => {
      const command = { kind: 'takeover', commitId: world.nextId('takeover'), runId, epoch, cause: 'died' } as const;
      void attachment.replica.submit(sessionId, command);
    });
  }

  cutAttachment(): void {
    this.attachment?.link.close();
  }

  /** This epoch had its life here: another claim must raise it. */
  private refuse({ sessionId, runId, epoch }: Assignment): void {
    const { world, attachment } = this;
    world.count('assignment refused');
    attachment?.link.send(attachment.replica, () => {
      const command = {
        kind: 'takeover',
        commitId: world.nextId('takeover'),
        runId,
        epoch,
        cause: 'unlisted',
      } as const;
      void attachment.replica.submit(sessionId, command);
    });
  }

  private async attachForEver(): Promise<void> {
    const { world } = this;
    let backOffMs = 5;
    for (;;) {
      const replica = world.random.pick(this.replicas);
      const link = new Link(this, replica);
      this.attachment = { link, replica };
      this.connectedAtMs = world.time.nowMs;
      link.send(replica, () => replica.dispatcher.attach(this, link));
      this.beat();
      await new Promise<void>((resolve) => link.onClose(this, resolve));
      await this.sleep(world.random.between(backOffMs / 2, backOffMs * 2));
      backOffMs = this.answeredAtMs > this.connectedAtMs ? 5 : Math.min(2 * backOffMs, BACK_OFF_MAX_MS);
    }
  }

  private async beatForEver(): Promise<void> {
    for (;;) {
      await this.sleep(HEARTBEAT_MS);
      this.beat();
    }
  }

  private beat(): void {
    const { attachment, world } = this;
    const { nowMs } = world.time;
    const listed = [...this.lives.keys()];
    attachment?.link.send(attachment.replica, () => {
      attachment.replica.dispatcher.heartbeat(this, attachment.link, listed);
    });
    if (nowMs - this.answeredAtMs > SELF_FENCE_MS && this.lives.size > 0 && world.has('selfFencing')) {
      world.count('runner stopped itself');
      for (const life of this.lives.values()) life.stop('fenced');
    }
    if (nowMs - Math.max(this.answeredAtMs, this.connectedAtMs) > SELF_FENCE_MS) attachment?.link.close();
  }
}
