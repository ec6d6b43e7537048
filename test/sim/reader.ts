import type { StoredFrame } from '@margay/log';
import type { Cursor, Gateway } from './gateway';
import { Link } from './link';
import { SimProcess } from './sim-process';
import type { World } from './world';

/** Follows the session for its whole life over streams that break, and keeps every frame it got. */
export class Reader extends SimProcess {
  readonly frames: StoredFrame[] = [];
  /** Runs whose completion it has seen. */
  readonly completed = new Set<string>();
  /** Streams that ended with a terminal event. */
  terminals = 0;
  /** Whether the latest stream has come to its terminal event. */
  isAtEnd = false;
  private ts = 0;
  private link: Link | undefined;

  constructor(
    world: World,
    name: string,
    private readonly gateways: readonly Gateway[],
    private readonly cursorKind: 'ts' | 'seq',
  ) {
    super(world, name);
  }

  boot(): void {
    this.spawn(() => this.followForEver());
  }

  onFrame(link: Link, frame: StoredFrame): void {
    if (!this.isCurrent(link, 'frame')) return;
    this.ts = Math.max(this.ts, frame.ts);
    const last = this.frames[this.frames.length - 1];
    // A cursor by time is inclusive: the last frame comes again, the same bytes.
    if (last && frame.seq === last.seq && frame.frame === last.frame) return;
    if (frame.seq !== (last?.seq ?? 0) + 1)
      this.world.fail('stream order', `${this.name} got ${frame.seq} after ${last?.seq ?? 0}`);
    this.frames.push(frame);
    const { type, run_id: runId } = JSON.parse(frame.frame) as { type: string; run_id?: string };
    if (type === 'completion' && runId !== undefined) this.completed.add(runId);
    this.world.trace(this.name, `${frame.seq} ${type} ${runId ?? ''}`);
  }

  onDelta(link: Link, ts: number): void {
    if (this.isCurrent(link, 'delta')) this.ts = Math.max(this.ts, ts);
  }

  onTerminal(link: Link): void {
    if (!this.isCurrent(link, 'terminal event')) return;
    this.terminals++;
    this.isAtEnd = true;
    this.world.trace(this.name, 'stream ends');
    this.world.expectations.ended(this);
    link.close();
  }

  /** Whether the latest stream may still deliver; after its terminal event it must not. */
  private isCurrent(link: Link, what: string): boolean {
    if (link !== this.link) return false;
    if (this.isAtEnd) this.world.fail('after the end', `${this.name} got a ${what} after its terminal event`);
    return true;
  }

  private async followForEver(): Promise<void> {
    const { random, time } = this.world;
    await this.sleep(random.between(0, 3_000));
    for (;;) {
      const gateway = random.pick(this.gateways);
      const link = new Link(this, gateway);
      this.link = link;
      this.isAtEnd = false;
      const last = this.frames[this.frames.length - 1];
      const cursor: Cursor = this.cursorKind === 'ts' ? { ts: this.ts } : { seq: last?.seq ?? 0 };
      this.world.expectations.opened(this);
      link.send(gateway, () => gateway.serve(cursor, this, link));
      if (this.world.areFaultsOn && random.chance(0.5)) time.at(random.between(5, 6_000), () => link.close());
      await new Promise<void>((resolve) => link.onClose(this, resolve));
      await this.sleep(random.between(1, random.chance(0.2) ? 2_000 : 100));
      if (this.isAtEnd) await this.sleep(random.between(100, 1_500));
    }
  }
}
