import type { CommitDocument, Head, StoredFrame } from '@margay/log';
import type { LiveMessage } from '../world/broker';
import type { Link } from '../world/link';
import type { Reader } from './reader';
import type { Replica } from '../session/replica';
import { SimProcess } from '../world/sim-process';
import { StoreClient } from '../store/store-client';
import type { World } from '../world/world';

const PROBE_MS = 2_000;
const GAP_MS = 100;

/** Where a reader goes on: at a time (that frame is sent again) or behind a number. */
export type Cursor = { ts: number } | { seq: number };

/** Serves streams: from the store first, live afterwards. */
export class Gateway extends SimProcess {
  store!: StoreClient;

  constructor(
    world: World,
    name: string,
    readonly replicas: readonly Replica[],
  ) {
    super(world, name);
  }

  boot(): void {
    this.store = new StoreClient(this);
  }

  serve(cursor: Cursor, reader: Reader, link: Link): void {
    this.spawn(() => new Stream(this, reader, link, cursor).serve());
  }
}

interface Step {
  c: number;
  frames: StoredFrame[];
  head: Head;
}

interface Said {
  runId: string;
  step: number;
}

/** One stream. Its position is a commit number, not a number of a frame: not every commit has frames. */
class Stream {
  private position = 0;
  private head: Head | undefined;
  private lastSeq = 0;
  private lastTs: number;
  private isLive = false;
  /** The newest step that has its message, and its run. */
  private said: Said = { runId: '', step: 0 };
  private buffer: LiveMessage[] = [];
  /** Steps beyond the position, and since when the first of them waits for what lies between. */
  private readonly held = new Map<number, Step>();
  private readonly sessionId: string;
  /** What a replay leaves out: the ranges that are cut at the end of what it read. */
  private cuts: Head['cuts'] = [];
  private gapSinceMs: number | undefined;
  private wake: () => void = () => undefined;

  constructor(
    private readonly gateway: Gateway,
    private readonly reader: Reader,
    private readonly link: Link,
    private readonly cursor: Cursor,
  ) {
    this.sessionId = reader.sessionId;
    this.lastTs = 'ts' in cursor ? cursor.ts : 0;
  }

  async serve(): Promise<void> {
    const { gateway, link } = this;
    const { sessionId } = this;
    const to = { subjects: ['commit', 'delta'] as const, sessionId };
    const unsubscribe = gateway.world.broker.subscribe(gateway, to, (message) => this.onMessage(message));
    link.onClose(gateway, () => this.wake());
    await gateway.sleep(1);
    await gateway.store.persist(() => this.replay());
    this.isLive = true;
    for (const message of this.buffer) this.onMessage(message);
    this.buffer = [];
    await this.follow();
    unsubscribe();
  }

  /** One range with one head for all its pages: its last commit gives position and state. */
  private async replay(): Promise<void> {
    const { gateway, cursor } = this;
    const { world, store } = gateway;
    const known = world.has('readerUsesHeadOfRange')
      ? undefined
      : world.random.pick(gateway.replicas).loop.peek(this.sessionId)?.head;
    const from = 'ts' in cursor ? Math.max(1, await store.findNumberByTs(this.sessionId, cursor.ts)) : 1;
    this.position = Math.max(this.position, from - 1);
    const read: CommitDocument[] = [];
    for await (const document of store.range(this.sessionId, this.position + 1)) read.push(document);
    this.cuts = world.has('cutsSkipped') ? (read.at(-1)?.head.cuts ?? []) : [];
    world.trace(
      gateway.name,
      `read ${read[0]?.c}-${read.at(-1)?.c} for ${this.reader.name}, cuts ${JSON.stringify(this.cuts)}`,
    );
    for (const document of read) this.take(document);
    this.cuts = [];
    if (known && known.c > this.position) {
      this.position = known.c;
      this.head = known;
    }
  }

  private async follow(): Promise<void> {
    const { gateway, link } = this;
    const { world } = gateway;
    let probedAtMs = world.time.nowMs;
    while (link.isOpen) {
      if (this.head && !this.head.run && (await this.isEnd())) return this.end();
      const probeInMs = probedAtMs + PROBE_MS - world.time.nowMs;
      const gapInMs = this.gapSinceMs === undefined ? Infinity : this.gapSinceMs + GAP_MS - world.time.nowMs;
      await this.sleepUntilWoken(Math.max(0, Math.min(probeInMs, gapInMs)));
      const isGapDue = this.gapSinceMs !== undefined && world.time.nowMs - this.gapSinceMs >= GAP_MS - 0.01;
      const isProbeDue = world.time.nowMs - probedAtMs >= PROBE_MS - 0.01;
      if (isProbeDue) probedAtMs = world.time.nowMs;
      if (isGapDue || (isProbeDue && (world.has('probe') || !this.head))) await this.readOn();
    }
  }

  private sleepUntilWoken(delayMs: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = this.gateway.after(delayMs, resolve);
      this.wake = () => {
        timer.cancel();
        resolve();
      };
    });
  }

  /** Whether the session's log truly ends at this stream's position. */
  private async isEnd(): Promise<boolean> {
    const { gateway, position } = this;
    const { store, world } = gateway;
    if (!world.has('endConfirmed')) return true;
    try {
      const next = await store.readNumber(this.sessionId, position + 1, { linearizable: true });
      if (next) this.take(next);
      return !next && this.position === position;
    } catch {
      await gateway.sleep(20);
      return false;
    }
  }

  private end(): void {
    const { link, reader } = this;
    link.send(reader, () => reader.onTerminal(link));
  }

  private async readOn(): Promise<void> {
    const { store, world } = this.gateway;
    try {
      for await (const document of store.range(this.sessionId, this.position + 1)) this.take(document);
      this.gapSinceMs = this.held.size > 0 ? world.time.nowMs : undefined;
    } catch {
      if (this.gapSinceMs !== undefined) this.gapSinceMs = world.time.nowMs;
    }
  }

  private onMessage(message: LiveMessage): void {
    if (message.kind === 'dispatch' || !this.link.isOpen) return;
    if (!this.isLive) this.buffer.push(message);
    else if (message.kind === 'delta') this.onDelta(message);
    else if (message.frames) this.onStep({ c: message.c, frames: message.frames, head: message.head });
    else if (message.c > this.position) this.waitForGap();
  }

  private onStep(step: Step): void {
    if (step.c <= this.position) return;
    if (step.c === this.position + 1 || !this.gateway.world.has('gapsByCommit')) {
      this.take(step);
      this.wake();
      return;
    }
    this.held.set(step.c, step);
    this.waitForGap();
  }

  private waitForGap(): void {
    this.gapSinceMs ??= this.gateway.world.time.nowMs;
    this.wake();
  }

  /** Delivers the next commit, and those held that follow it. */
  private take(first: Step | CommitDocument): void {
    let step: Step | undefined = 'frames' in first ? first : { ...first, frames: first.events };
    while (step) {
      const { c, frames, head } = step;
      this.held.delete(c);
      if (c > this.position) {
        this.position = c;
        this.head = head;
        for (const frame of frames) this.deliver(frame);
      }
      step = this.held.get(this.position + 1);
    }
    for (const c of this.held.keys()) if (c <= this.position) this.held.delete(c);
    if (this.held.size === 0) this.gapSinceMs = undefined;
  }

  private deliver(frame: StoredFrame): void {
    const { cursor, link, reader } = this;
    if (frame.seq <= this.lastSeq) return;
    this.lastSeq = frame.seq;
    this.said = saidIn(frame) ?? this.said;
    this.lastTs = Math.max(this.lastTs, frame.ts);
    if (this.cuts.some(([from, to]) => from <= frame.seq && frame.seq <= to)) return;
    const isWanted = 'ts' in cursor ? frame.ts >= cursor.ts : frame.seq > cursor.seq;
    if (isWanted) link.send(reader, () => reader.onFrame(link, frame));
  }

  private onDelta({ runId, step, c, ts }: LiveMessage & { kind: 'delta' }): void {
    const { link, reader, gateway, said } = this;
    // One that follows a commit not reached yet is dropped; it shows that there is something to read.
    if (c > this.position) return this.waitForGap();
    const isLate = runId === said.runId ? step <= said.step : runNoOf(runId) < runNoOf(said.runId);
    if (isLate && gateway.world.has('noLateDelta')) return;
    const stamp = gateway.world.has('deltaFollows') ? this.lastTs : ts;
    link.send(reader, () => reader.onDelta(link, { runId, step, ts: stamp }));
  }
}

function runNoOf(runId: string): number {
  return Number(runId.split(':r')[1] ?? 0);
}

/** The step whose text is whole with this frame. */
export function saidIn({ frame }: StoredFrame): Said | undefined {
  if (!frame.includes('"type":"agent_message"') && !frame.includes('"type":"completion"')) return undefined;
  const { payload, run_id: runId = '' } = JSON.parse(frame) as { payload: { step?: number }; run_id?: string };
  return { runId, step: payload.step ?? Infinity };
}
