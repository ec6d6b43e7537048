import type { runnersPb } from '@margay/contracts';
import { systemPrincipal, type GrpcClient } from '@margay/platform';

type RunnersClient = GrpcClient<typeof runnersPb.RunnersDefinition>;
type Response = NonNullable<runnersPb.JournalResponse['message']>;

/** Messages of a stream, taken one at a time. */
class Mailbox<T> {
  private readonly waiting: ((item: T) => void)[] = [];
  private readonly items: T[] = [];

  put(item: T): void {
    const taker = this.waiting.shift();
    if (taker) taker(item);
    else this.items.push(item);
  }

  get size(): number {
    return this.items.length;
  }

  take(): Promise<T> {
    const item = this.items.shift();
    return item === undefined ? new Promise((resolve) => this.waiting.push(resolve)) : Promise.resolve(item);
  }
}

/** A runner of which nobody has heard for some seconds gets no runs, and a busy machine may need longer to have one for it. */
const IDLE_BEAT_MS = 2_500;

/** A runner played by a spec, over the real streams. It beats by itself as long as it has no run and the spec no wish. */
export class ScriptedRunner {
  readonly assigns = new Mailbox<runnersPb.Assign>();
  readonly acks = new Mailbox<runnersPb.HeartbeatAck>();
  readonly revokes = new Mailbox<runnersPb.Revoke>();
  /** Resolves when the replica has ended the stream. */
  readonly ended: Promise<void>;
  private readonly stream: ReturnType<RunnersClient['attach']>;
  private readonly idle: NodeJS.Timeout;

  constructor(
    private readonly client: RunnersClient,
    readonly instance: string,
    pool: string,
    slots = 10,
  ) {
    this.stream = client.attach({ principal: systemPrincipal('agent-runner', '_platform') });
    this.stream.on('data', ({ message }) => {
      if (message?.$case === 'assign') {
        clearInterval(this.idle);
        this.assigns.put(message.value);
      }
      if (message?.$case === 'heartbeatAck') this.acks.put(message.value);
      if (message?.$case === 'revoke') this.revokes.put(message.value);
    });
    this.ended = new Promise((resolve) => this.stream.on('end', resolve));
    this.stream.on('error', () => undefined);
    this.idle = setInterval(() => this.beat([], slots), IDLE_BEAT_MS);
    for (const event of ['end', 'error', 'close']) this.stream.on(event, () => clearInterval(this.idle));
    this.stream.write({ message: { $case: 'hello', value: { instance, pool, slots, version: '1' } } });
    this.beat([], slots);
  }

  /** The next assignment of this session; runs that other tests left in the queue are passed over. */
  async assignOf(sessionId: string): Promise<runnersPb.Assign> {
    for (;;) {
      const assign = await this.assigns.take();
      if (assign.sessionId === sessionId) return assign;
    }
  }

  /** The next grant for this run that an answer to a heartbeat brings. */
  async grantOf({ runId }: runnersPb.HeldRun): Promise<string> {
    for (;;) {
      const { grants } = await this.acks.take();
      const found = grants.find((grant) => grant.runId === runId);
      if (found) return found.grant;
    }
  }

  heartbeat(runs: runnersPb.HeldRun[], freeSlots = 10): void {
    clearInterval(this.idle);
    this.beat(runs, freeSlots);
  }

  private beat(runs: runnersPb.HeldRun[], freeSlots: number): void {
    this.stream.write({ message: { $case: 'heartbeat', value: { beat: 1, freeSlots, runs } } });
  }

  /** Like a killed process: the stream is cut. */
  die(): void {
    clearInterval(this.idle);
    this.stream.cancel();
  }

  detach(): void {
    clearInterval(this.idle);
    this.stream.write({ message: { $case: 'drained', value: {} } });
    this.stream.end();
  }

  /** @param client of another replica than the one it is attached to */
  async openJournal(assign: runnersPb.Assign, client = this.client): Promise<ScriptedJournal> {
    const journal = new ScriptedJournal(client, assign);
    await journal.open();
    return journal;
  }
}

export class ScriptedJournal {
  readonly messages = new Mailbox<Response>();
  /** Resolves when the stream is over. */
  readonly ended: Promise<void>;
  readonly records: { kind: string; [field: string]: unknown }[] = [];
  private readonly stream: ReturnType<RunnersClient['journal']>;
  private count = 0;

  constructor(
    client: RunnersClient,
    private readonly assign: runnersPb.Assign,
  ) {
    this.stream = client.journal({ grant: assign.grant });
    this.stream.on('data', ({ message }) => message && this.messages.put(message));
    this.ended = new Promise((resolve) => this.stream.on('end', resolve));
    this.stream.on('error', () => undefined);
  }

  async open(): Promise<void> {
    const { sessionId, runId, epoch, grant } = this.assign;
    this.stream.write({ message: { $case: 'open', value: { sessionId, runId, epoch, grant, haveC: 0 } } });
    for (;;) {
      const message = await this.messages.take();
      if (message.$case !== 'opened') throw new Error(`opened expected, not ${message.$case}`);
      this.records.push(...message.value.records.map(({ json }) => JSON.parse(json) as { kind: string }));
      if (message.value.last) return;
    }
  }

  /** Sends a command and returns the next message of the stream. */
  async send(
    command: object,
    commitId = `${this.assign.runId}.${this.assign.epoch}.${(this.count += 1)}`,
  ): Promise<Response> {
    this.stream.write({ message: { $case: 'commit', value: { commitId, commandJson: JSON.stringify(command) } } });
    return this.messages.take();
  }

  finish(text: string, consumedTo?: number): Promise<Response> {
    return this.send({
      kind: 'finish',
      text,
      completion: { done: true, done_reason: 'completed', task_result: text },
      consumedTo,
    });
  }

  delta(delta: runnersPb.JournalDelta): void {
    this.stream.write({ message: { $case: 'delta', value: delta } });
  }

  close(): void {
    this.stream.end();
  }
}
