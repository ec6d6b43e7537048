import { type runnersPb } from '@margay/contracts';
import { systemPrincipal, type GrpcClient, type Logger } from '@margay/platform';

type RunnersClient = GrpcClient<typeof runnersPb.RunnersDefinition>;
type AttachStream = ReturnType<RunnersClient['attach']>;

/** Tenant of calls that concern the installation and no tenant. */
const PLATFORM = '_platform';
const RECONNECT_FIRST_MS = 50;
const RECONNECT_MAX_MS = 1_000;
/** Without an answer to heartbeats for so long a runner stops its work by itself. */
const SELF_FENCE_MS = 10_000;

const CLOSE_WAIT_MS = 1_000;

export interface AttachHost {
  freeSlots(): number;
  heldRuns(): runnersPb.HeldRun[];
  /** Runs that nobody drives here any more and that have to be taken back; told until they are revoked. */
  lostRuns(): runnersPb.RunDied[];
  onAssign(assign: runnersPb.Assign): void;
  onRevoke(revoke: runnersPb.Revoke): void;
  onGrant(grant: runnersPb.RenewedGrant): void;
  /** Nobody answers: others may have taken the runs over. */
  onSilence(): void;
}

export interface AttachOptions {
  client: RunnersClient;
  host: AttachHost;
  instance: string;
  pool: string;
  slots: number;
  version: string;
  /** Asked until it says so once. */
  mayAttach: () => boolean;
  heartbeatMs: number;
  logger: Logger;
  /** Milliseconds of a clock that never jumps. */
  now?: () => number;
}

/** Keeps one `Attach` stream open to some session replica, for as long as the process lives. */
export class AttachClient {
  private stream?: AttachStream;
  private beat = 0;
  private answeredAtMs: number;
  /** When the present stream was opened, or last given up. */
  private connectedAtMs = 0;
  /** This stream has been answered. */
  private isAnswered = false;
  private isSilent = false;
  private isStarted = false;
  private isClosed = false;
  private reconnectMs = RECONNECT_FIRST_MS;
  private heartbeatTimer?: NodeJS.Timeout;
  private reconnectTimer?: NodeJS.Timeout;

  private readonly now: () => number;

  constructor(private readonly options: AttachOptions) {
    this.now = options.now ?? (() => performance.now());
    this.answeredAtMs = this.now();
  }

  get isAttached(): boolean {
    return this.isAnswered && !this.isSilent;
  }

  start(): void {
    if (!this.options.mayAttach()) {
      this.reconnectTimer = setTimeout(() => this.start(), RECONNECT_MAX_MS);
      return;
    }
    this.answeredAtMs = this.now();
    this.isStarted = true;
    this.connect();
    this.heartbeatTimer = setInterval(() => this.heartbeat(), this.options.heartbeatMs);
  }

  /** Says that nothing is left here and that nothing more will be taken. */
  drained(): void {
    this.stream?.write({ message: { $case: 'drained', value: {} } });
  }

  /** Resolves once the session replica has handled all that was said, or after a second. */
  async close(): Promise<void> {
    this.isClosed = true;
    clearInterval(this.heartbeatTimer);
    clearTimeout(this.reconnectTimer);
    const { stream } = this;
    if (!stream) return;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, CLOSE_WAIT_MS);
      stream.once('close', () => {
        clearTimeout(timer);
        resolve();
      });
      stream.end();
    });
  }

  /** Says at once how many slots are free, e.g. after a run has ended. */
  heartbeat(): void {
    if (!this.isStarted) return;
    const { host } = this.options;
    const nowMs = this.now();
    if (!this.isSilent && nowMs - this.answeredAtMs >= SELF_FENCE_MS) this.onSilence();
    // Another replica may answer where this one does not; this one must not hear of free slots that it would fill.
    if (nowMs - Math.max(this.answeredAtMs, this.connectedAtMs) >= SELF_FENCE_MS) {
      this.connectedAtMs = nowMs;
      return void this.stream?.cancel();
    }
    this.beat += 1;
    for (const lost of host.lostRuns()) this.stream?.write({ message: { $case: 'died', value: lost } });
    const value = { beat: this.beat, freeSlots: host.freeSlots(), runs: host.heldRuns() };
    this.stream?.write({ message: { $case: 'heartbeat', value } });
  }

  private onSilence(): void {
    this.isSilent = true;
    this.options.logger.warn({ silentMs: SELF_FENCE_MS }, 'no session replica answers; all runs here are stopped');
    this.options.host.onSilence();
  }

  private connect(): void {
    const { client, instance, pool, slots, version, logger } = this.options;
    const stream = client.attach({ principal: systemPrincipal('agent-runner', PLATFORM) });
    this.stream = stream;
    this.connectedAtMs = this.now();
    stream.on('data', ({ message }) => {
      if (this.stream === stream) this.onMessage(message);
    });
    stream.on('error', (error: Error) => {
      logger.debug({ err: error }, 'the Attach stream failed');
      this.reconnectAfter(stream);
    });
    stream.on('end', () => this.reconnectAfter(stream));
    stream.write({ message: { $case: 'hello', value: { instance, pool, slots, version } } });
    this.heartbeat();
  }

  private reconnectAfter(stream: AttachStream): void {
    if (this.isClosed || this.stream !== stream) return;
    delete this.stream;
    this.isAnswered = false;
    this.reconnectTimer = setTimeout(() => this.connect(), this.reconnectMs * (0.5 + Math.random()));
    this.reconnectMs = Math.min(this.reconnectMs * 2, RECONNECT_MAX_MS);
  }

  private onMessage(message: runnersPb.AttachResponse['message']): void {
    const { host } = this.options;
    switch (message?.$case) {
      case 'assign':
        return host.onAssign(message.value);
      case 'revoke':
        return host.onRevoke(message.value);
      case 'heartbeatAck':
        this.answeredAtMs = this.now();
        this.isAnswered = true;
        this.isSilent = false;
        this.reconnectMs = RECONNECT_FIRST_MS;
        for (const grant of message.value.grants) host.onGrant(grant);
        return;
      case undefined:
        return;
    }
  }
}
