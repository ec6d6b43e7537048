import { setTimeout as delay } from 'node:timers/promises';
import type { PlatformHarness } from '../e2e/harness';

const RETRY_MS = 150;
/** A stream that brings neither frame nor end for so long is opened again, as a careful client does. */
const SILENT_MS = 20_000;

export interface RunRecord {
  name: string;
  /** Idempotency keys and sessions are the actor's; the gateway may die at any point of the request. */
  acceptedAt: number;
  endedAt?: number;
}

/** A user: one session, one run after the other, and a client that records the stream with resume. */
export class Actor {
  readonly runs: RunRecord[] = [];
  /** Texts of all frames received, in order. */
  readonly recording: string[] = [];
  sessionId = '';
  folder = '';
  private cursor: string | undefined;

  constructor(
    private readonly margay: PlatformHarness,
    private readonly number: number,
  ) {}

  async open(): Promise<void> {
    this.folder = await this.margay.workspace({ 'count.txt': '', 'edits.txt': 'start\n' });
    this.sessionId = (await this.margay.client.sessions.create({ cwd: this.folder })).id;
  }

  /** Runs until told to stop, then finishes the run it is in. */
  async play(isOver: () => boolean, deadline: AbortSignal): Promise<void> {
    while (!isOver()) {
      const name = `run-${this.number}-${this.runs.length}`;
      await this.query(name, deadline);
      const run: RunRecord = { name, acceptedAt: Date.now() };
      this.runs.push(run);
      await this.record(deadline);
      run.endedAt = Date.now();
    }
  }

  private async query(name: string, deadline: AbortSignal): Promise<void> {
    for (;;) {
      deadline.throwIfAborted();
      const key = { 'idempotency-key': `${this.sessionId}-${name}` };
      const path = `/api/sessions/${this.sessionId}/query`;
      const answered = await this.margay.request('POST', path, { query: `please do ${name}` }, key).then(
        ({ status, body }) => ({ status, body }),
        () => ({ status: 0, body: undefined }), // the gateway is away
      );
      if (answered.status === 202) return;
      // 409: the run before it has ended for its reader, but the end is not yet applied everywhere.
      if (answered.status !== 0 && answered.status !== 409 && answered.status < 500)
        throw new Error(`query answered ${answered.status}: ${JSON.stringify(answered.body)}`);
      await delay(RETRY_MS);
    }
  }

  /** Follows the stream over any number of cuts until it ends by itself. */
  private async record(deadline: AbortSignal): Promise<void> {
    for (;;) {
      deadline.throwIfAborted();
      if (await this.follow(deadline).catch(() => false)) return;
      await delay(RETRY_MS);
    }
  }

  private async follow(deadline: AbortSignal): Promise<boolean> {
    const silence = new AbortController();
    let timer = setTimeout(() => silence.abort(), SILENT_MS);
    try {
      const frames = await this.margay.frames(this.sessionId, {
        query: '?ids=1&deltas=0',
        ...(this.cursor === undefined ? {} : { after: this.cursor }),
        signal: AbortSignal.any([silence.signal, deadline]),
        takes: ({ text, event }) => {
          clearTimeout(timer);
          timer = setTimeout(() => silence.abort(), SILENT_MS);
          if (event.seq !== undefined) {
            this.recording.push(text);
            this.cursor = String(event.seq);
          }
          return true;
        },
      });
      return frames.at(-1)?.event.type === 'stream_end';
    } finally {
      clearTimeout(timer);
    }
  }
}
