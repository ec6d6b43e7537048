import { isoMicros, type LiveDelta, type sessionsPb } from '@margay/contracts';

export type Frame = sessionsPb.Frame;

/** Frames as the stream spells them; `id:` lines only for clients that asked for them. */
export function sseFrames(frames: readonly Frame[], withIds: boolean): string {
  let text = '';
  for (const { seq, json } of frames) text += withIds ? `id: ${seq}\ndata: ${json}\n\n` : `data: ${json}\n\n`;
  return text;
}

/** A commit on its way to the listeners of a session: encoded once, whoever reads it. */
export class FeedCommit {
  private plain?: Buffer;
  private numbered?: Buffer;

  constructor(
    /** Number of the commit read before this one: what lies between them has nothing to show. */
    readonly after: number,
    readonly c: number,
    readonly frames: readonly Frame[],
    /** Whether a run is active after it; undefined where that is not known. */
    readonly isRunning: boolean | undefined,
  ) {}

  get lastTs(): number | undefined {
    return this.frames.at(-1)?.ts;
  }

  get chars(): number {
    return this.frames.reduce((sum, { json }) => sum + json.length, 0);
  }

  bytes(withIds: boolean): Buffer {
    if (withIds) return (this.numbered ??= Buffer.from(sseFrames(this.frames, true)));
    return (this.plain ??= Buffer.from(sseFrames(this.frames, false)));
  }
}

/** A text fragment of a running step, stamped with the time of the last stored event its reader has. */
export class FeedDelta {
  private readonly tail: string;
  private stampedTs?: number;
  private stamped?: Buffer;

  constructor(readonly delta: LiveDelta) {
    const payload = JSON.stringify(delta.payload);
    this.tail = `","type":"agent_message_delta","payload":${payload},"run_id":${JSON.stringify(delta.runId)}}\n\n`;
  }

  /** Readers are most often at the same event, so the last encoding is kept. */
  bytes(ts: number): Buffer {
    if (this.stamped === undefined || this.stampedTs !== ts) {
      this.stampedTs = ts;
      this.stamped = Buffer.from(`data: {"ts":"${isoMicros(ts)}${this.tail}`);
    }
    return this.stamped;
  }
}
