import type { Head, StoredFrame } from '@margay/log';
import { saidIn, type Cursor, type Gateway } from './gateway';
import { Link } from '../world/link';
import { SimProcess } from '../world/sim-process';
import type { World } from '../world/world';

/** Follows the session for its whole life over streams that break, and keeps every frame it got. */
export class Reader extends SimProcess {
  readonly frames: StoredFrame[] = [];
  /** Steps whose message it has. */
  private readonly said = new Set<string>();
  /** Runs whose completion it has seen. */
  readonly completed = new Set<string>();
  /** Streams that ended with a terminal event. */
  terminals = 0;
  /** Whether the latest stream has come to its terminal event. */
  isAtEnd = false;
  private ts = 0;
  /** What was cut when the latest stream was opened. */
  private cutBefore: Head['cuts'] = [];
  private link: Link | undefined;

  constructor(
    world: World,
    name: string,
    readonly sessionId: string,
    private readonly gateways: readonly Gateway[],
    private readonly cursorKind: 'ts' | 'seq',
    /** It comes when all is over, and reads everything from the store. */
    readonly isNewcomer = false,
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
    if (frame.seq <= (last?.seq ?? 0))
      this.world.fail('stream order', `${this.name} got ${frame.seq} after ${last?.seq ?? 0}`);
    if (isCut(this.cutBefore, frame.seq))
      this.world.fail('cut frame', `${this.name} got ${frame.seq}, which was cut before it asked`);
    this.frames.push(frame);
    const said = saidIn(frame);
    if (said) this.said.add(`${said.runId} ${said.step}`);
    const runId = completedIn(frame);
    if (runId !== undefined) this.completed.add(runId);
    if (this.world.isTraced) this.world.trace(this.name, `${frame.seq} ${/"type":"(\w+)"/.exec(frame.frame)?.[1]}`);
  }

  onDelta(link: Link, { runId, step, ts }: { runId: string; step: number; ts: number }): void {
    if (!this.isCurrent(link, 'delta')) return;
    this.ts = Math.max(this.ts, ts);
    if (this.said.has(`${runId} ${step}`)) this.world.fail('late delta', `${this.name}: step ${step} of ${runId}`);
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
    if (!this.isNewcomer) await this.sleep(random.between(0, 3_000));
    for (;;) {
      const gateway = random.pick(this.gateways);
      const link = new Link(this, gateway);
      this.link = link;
      this.isAtEnd = false;
      const last = this.frames[this.frames.length - 1];
      const cursor: Cursor = this.cursorKind === 'ts' ? { ts: this.ts } : { seq: last?.seq ?? 0 };
      this.world.expectations.opened(this);
      this.cutBefore = cutsAt(this.world, this.sessionId);
      this.world.trace(this.name, `asks ${gateway.name} for ${JSON.stringify(cursor)}`);
      link.send(gateway, () => gateway.serve(cursor, this, link));
      if (this.world.areFaultsOn && random.chance(0.5)) time.at(random.between(5, 6_000), () => link.close());
      await new Promise<void>((resolve) => link.onClose(this, resolve));
      await this.sleep(random.between(1, random.chance(0.2) ? 2_000 : 100));
      if (this.isAtEnd) await this.sleep(random.between(200, 3_000));
    }
  }
}

/** The run whose end this frame tells. */
function completedIn({ frame }: StoredFrame): string | undefined {
  return frame.includes('"type":"completion"') ? (JSON.parse(frame) as { run_id?: string }).run_id : undefined;
}

export function isCut(cuts: Head['cuts'], seq: number): boolean {
  return cuts.some(([from, to]) => from <= seq && seq <= to);
}

/** The cuts that everybody can read about now. */
function cutsAt(world: World, sessionId: string): Head['cuts'] {
  const known = world.store.documentsOf(sessionId).filter(({ _id }) => world.store.isOld(_id));
  return known.at(-1)?.head.cuts ?? [];
}
