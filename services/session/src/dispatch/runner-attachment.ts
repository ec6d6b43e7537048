import type { runnersPb } from '@margay/contracts';
import { InvalidArgumentError } from '@margay/errors';
import type { Head } from '@margay/log';
import type { Logger } from '@margay/platform';
import type { SessionLog } from '../commits/session-log';
import { AttachedRunner, type HeldRun, type RunnerStream } from './attached-runner';
import type { Dispatcher } from './dispatcher';
import type { RunGrants } from './run-grants';
import type { RunnerRepository } from './runner.repository';
import type { RunnerWatch } from './runner-watch';

export interface AttachmentPorts {
  log: SessionLog;
  dispatcher: Dispatcher;
  watch: RunnerWatch;
  runners: RunnerRepository;
  grants: RunGrants;
  logger: Logger;
}

/** How long a runner whose `Attach` closed may take to attach elsewhere. */
const REATTACH_MS = 2_000;
/**
 * So long runners are kept at work while the store does not answer: an outage counts for nobody. Without end others, who
 * see the store, would have taken their runs over.
 */
const STORE_SILENCE_MS = 30_000;

/** The conversation with one runner over its `Attach` stream. */
export class RunnerAttachment {
  private attached?: Promise<AttachedRunner>;
  private isClosed = false;
  private isDetached = false;
  /** What needs the store is done one at a time, in the order of the messages. */
  private handled: Promise<void> = Promise.resolve();
  private newest?: runnersPb.Heartbeat;
  private missed: ReadonlySet<string> = new Set();
  private storeSeenMs = performance.now();

  constructor(
    private readonly ports: AttachmentPorts,
    private readonly stream: RunnerStream,
    private readonly fail: (error: unknown) => void,
  ) {}

  receive({ message }: runnersPb.AttachRequest): void {
    if (message?.$case === 'hello') {
      this.attached ??= this.attach(message.value);
      this.attached.catch((error: unknown) => this.fail(error));
      return;
    }
    if (!this.attached) return this.fail(new InvalidArgumentError('hello_missing', 'the first message must be hello'));
    if (message?.$case === 'heartbeat') this.handle(async (runner) => this.onHeartbeat(runner, message.value));
    if (message?.$case === 'died') this.handle((runner) => this.onDied(runner, message.value));
    if (message?.$case === 'drained') this.handle((runner) => this.queue(() => this.onDrained(runner)));
  }

  /** The runner has ended its side: whatever it said is handled first. */
  async end(): Promise<void> {
    await this.attached?.catch(() => undefined); // it was told
    await this.handled;
    this.stream.end();
  }

  /** The stream is gone: without a new one in two seconds the runner is lost. May be called repeatedly. */
  close(): void {
    this.isClosed = true;
    if (this.attached) this.handle((runner) => this.onDetached(runner));
  }

  private async attach({ instance, pool, slots }: runnersPb.Hello): Promise<AttachedRunner> {
    const generation = await this.ports.runners.attach(instance, pool, slots);
    const runner = new AttachedRunner(instance, pool, slots, generation, this.stream);
    // One that is gone meanwhile must not stand in the place of the runner's next stream.
    if (!this.isClosed) this.ports.dispatcher.attach(runner);
    this.ports.logger.info({ runner: instance, pool, slots }, 'a runner attached');
    return runner;
  }

  private handle(work: (runner: AttachedRunner) => Promise<void>): void {
    this.attached?.then(
      (runner) => work(runner).catch((error: unknown) => this.warn(error)),
      () => undefined, // it was told
    );
  }

  private queue(work: () => Promise<void>): Promise<void> {
    this.handled = this.handled.then(work).catch((error: unknown) => this.warn(error));
    return this.handled;
  }

  private warn(error: unknown): void {
    this.ports.logger.warn({ err: error }, 'a runner message could not be handled');
  }

  /** Answered from what this replica knows: a runner works on while the store is away. */
  private async onHeartbeat(runner: AttachedRunner, heartbeat: runnersPb.Heartbeat): Promise<void> {
    const { log, dispatcher } = this.ports;
    runner.onHeartbeat(heartbeat.freeSlots, heartbeat.runs);
    void dispatcher.dispatch(runner.pool);
    const unknown = heartbeat.runs.filter((held) => !shows(log.cachedHead(held.sessionId), held));
    this.newest = heartbeat;
    void this.queue(() => this.settle(runner, heartbeat, unknown));
    if (performance.now() - this.storeSeenMs > STORE_SILENCE_MS) return;
    const known = heartbeat.runs.filter((held) => !unknown.includes(held));
    const grants = known.map((held) => this.renew(held, log.cachedHead(held.sessionId)));
    runner.acknowledge({ beat: heartbeat.beat, grants: (await Promise.all(grants)).filter((grant) => !!grant) });
  }

  /** What a heartbeat says to the store; of several that waited for it only the newest counts. */
  private async settle(runner: AttachedRunner, heartbeat: runnersPb.Heartbeat, unknown: HeldRun[]): Promise<void> {
    if (this.newest !== heartbeat || runner.isDrained) return;
    const { runners, watch, log } = this.ports;
    await runners.beat(runner);
    this.storeSeenMs = performance.now();
    this.missed = await watch.compare(runner.instance, heartbeat.runs, this.missed);
    if (unknown.length === 0) return;
    const heads = await Promise.all(unknown.map((held) => log.headOfEpoch(held.sessionId, held.epoch)));
    const grants = await Promise.all(unknown.map((held, index) => this.renew(held, heads[index])));
    unknown.forEach((held, index) => {
      const isOver = (heads[index]?.epoch ?? 0) >= held.epoch && !grants[index];
      if (isOver) runner.revoke(held, 'the run has moved on');
    });
    runner.acknowledge({ beat: heartbeat.beat, grants: grants.filter((grant) => !!grant) });
  }

  private async renew(held: HeldRun, head: Head | undefined): Promise<runnersPb.RenewedGrant | undefined> {
    if (!head?.run || !shows(head, held)) return undefined;
    const { runId, epoch } = held;
    return { runId, epoch, grant: await this.ports.grants.sign(head, head.run, epoch) };
  }

  private async onDrained(runner: AttachedRunner): Promise<void> {
    runner.isDrained = true;
    this.ports.dispatcher.detach(runner);
    // What it did not hand over itself goes back now.
    await this.ports.watch.takeOverAll(runner.instance, 'drain', runner.held);
  }

  /** The process of one run is gone; everything else there goes on. */
  private async onDied(runner: AttachedRunner, { detail, ...held }: runnersPb.RunDied): Promise<void> {
    const { watch, logger } = this.ports;
    logger.warn({ ...held, runner: runner.instance, detail }, 'the process of a run has died');
    await watch.takeOverAlone(held, runner.instance, 'died');
    // It is told again until then.
    runner.revoke(held, 'the run was taken back');
  }

  private async onDetached(runner: AttachedRunner): Promise<void> {
    const { dispatcher, runners, watch, logger } = this.ports;
    if (runner.isDrained || this.isDetached) return;
    this.isDetached = true;
    dispatcher.detach(runner);
    const closedMs = performance.now();
    await new Promise((resolve) => setTimeout(resolve, REATTACH_MS).unref());
    // A replica that leaves has closed the stream itself.
    if (dispatcher.isStopped) return;
    if (!(await runners.markLost(runner.instance, runner.generation))) return;
    logger.warn({ runner: runner.instance }, 'a runner is lost');
    await watch.takeOverAll(runner.instance, 'crash', runner.held, closedMs);
  }
}

function shows(head: Head | undefined, { runId, epoch }: HeldRun): boolean {
  return head?.run?.id === runId && head.epoch === epoch;
}
