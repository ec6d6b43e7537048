import { setTimeout as delay } from 'node:timers/promises';
import type { FramesOptions, PlatformHarness, WireFrame } from '../e2e/harness';
import type { Connection } from './check-recording';
import type { RunRecord } from './check-runs';

const RETRY_MS = 150;
const ANSWER_MS = 10_000;
/** A stream that brings neither frame nor end for so long is opened again, as a careful client does. */
const SILENT_MS = 20_000;

/** A user: one session, one run after the other, and a client that records the stream with resume. */
export class Actor {
  readonly runs: RunRecord[] = [];
  /** Texts of all frames received, in order. */
  readonly recording: string[] = [];
  readonly connections: Connection[] = [];
  sessionId = '';
  folder = '';
  private cursor: string | undefined;
  private gateway: number;

  constructor(
    private readonly margay: PlatformHarness,
    private readonly number: number,
  ) {
    this.gateway = number;
  }

  async open(): Promise<void> {
    this.folder = await this.margay.workspace({ 'count.txt': '', 'edits.txt': 'start\n' });
    this.sessionId = (await this.margay.client.sessions.create({ cwd: this.folder })).id;
  }

  /** Runs until told to stop, but once at least, and finishes the run it is in. */
  async play(isOver: () => boolean, deadline: AbortSignal): Promise<void> {
    do await this.playOne(deadline);
    while (!isOver());
  }

  private async playOne(deadline: AbortSignal): Promise<void> {
    await this.query(this.nextName, deadline);
    await this.recordOne(deadline);
  }

  /** Follows to its end a run that was accepted already. */
  async recordOne(deadline: AbortSignal): Promise<void> {
    const name = this.nextName;
    const run: RunRecord = { name, acceptedAt: Date.now() };
    this.runs.push(run);
    await this.record(name, deadline);
    run.endedAt = Date.now();
    run.framesAtEnd = this.recording.length;
  }

  private get nextName(): string {
    return `run-${this.number}-${this.runs.length}`;
  }

  private async query(name: string, deadline: AbortSignal): Promise<void> {
    for (;;) {
      deadline.throwIfAborted();
      const answered = await this.ask(name, deadline);
      if (answered?.status === 202) return;
      // 409: the run before it has ended for its reader, but the end is not yet applied everywhere.
      if (answered && answered.status !== 409 && answered.status < 500)
        throw new Error(`query answered ${answered.status}: ${JSON.stringify(answered.body)}`);
      await delay(RETRY_MS);
    }
  }

  /** Undefined where the gateway is away: another one is asked next. */
  private async ask(name: string, deadline: AbortSignal) {
    const key = { 'idempotency-key': `${this.sessionId}-${name}` };
    const path = `/api/sessions/${this.sessionId}/query`;
    const signal = AbortSignal.any([AbortSignal.timeout(ANSWER_MS), deadline]);
    const options = { gatewayUrl: this.nextGateway(), signal };
    return this.margay.request('POST', path, { query: `please do ${name}` }, key, options).catch(() => undefined);
  }

  /** Follows the stream over any number of cuts until it ends by itself. */
  private async record(run: string, deadline: AbortSignal): Promise<void> {
    for (;;) {
      deadline.throwIfAborted();
      const connection: Connection = { run, ends: 0, behindEnd: 0 };
      this.connections.push(connection);
      await this.follow(connection, deadline).catch(() => undefined); // cut: what came so far counts
      if (connection.ends > 0) return;
      await delay(RETRY_MS);
    }
  }

  private async follow(connection: Connection, deadline: AbortSignal): Promise<void> {
    const silence = new AbortController();
    let timer = setTimeout(() => silence.abort(), SILENT_MS);
    const options: FramesOptions = {
      query: '?ids=1&deltas=0',
      ...(this.cursor === undefined ? {} : { after: this.cursor }),
      gatewayUrl: this.nextGateway(),
      signal: AbortSignal.any([silence.signal, deadline]),
      takes: (frame) => {
        clearTimeout(timer);
        timer = setTimeout(() => silence.abort(), SILENT_MS);
        this.take(connection, frame);
        return true;
      },
    };
    await this.margay.frames(this.sessionId, options).finally(() => clearTimeout(timer));
  }

  private take(connection: Connection, { text, event }: WireFrame): void {
    if (connection.ends > 0) connection.behindEnd += 1;
    if (event.type === 'stream_end') connection.ends += 1;
    if (event.seq === undefined) return;
    this.recording.push(text);
    this.cursor = String(event.seq);
  }

  private nextGateway(): string {
    const { gatewayUrls } = this.margay.platform;
    this.gateway += 1;
    return gatewayUrls[this.gateway % gatewayUrls.length] as string;
  }
}
