import { isoMicros, type LiveDelta, type sessionsPb } from '@margay/contracts';

export type Frame = sessionsPb.Frame;

/**
 * `numbered`: with `id:` lines; from the first restore on they begin with the store's generation. `named`: with the session's
 * id as `event:`, for streams of many sessions.
 */
export type FrameStyle = 'plain' | 'numbered' | 'named' | `numbered:${number}`;

/** With `id:` lines for this generation of the store. */
export const numbered = (generation: number): FrameStyle => (generation === 0 ? 'numbered' : `numbered:${generation}`);

/** State of a session after a commit. */
export interface FeedState {
  running: boolean;
  json: string;
}

/** Frames as the stream spells them; the session is only needed where frames are named. */
export function sseFrames(frames: readonly Frame[], style: FrameStyle, sessionId = ''): string {
  let text = '';
  const [kind, generation] = style.split(':');
  const before = generation === undefined ? 'id: ' : `id: ${generation}.`;
  for (const { seq, json } of frames) {
    if (kind === 'numbered') text += `${before}${seq}\n`;
    else if (kind === 'named') text += `event: ${sessionId}\n`;
    text += `data: ${json}\n\n`;
  }
  return text;
}

/** Type of a stored frame without parsing it: the frame begins with `ts`, `type`. */
export function typeOf(json: string): string {
  const start = json.indexOf('"type":"') + 8;
  return json.slice(start, json.indexOf('"', start));
}

export interface FeedCommitParts {
  sessionId: string;
  /** Number of the commit read before this one: what lies between them has nothing to show. */
  after: number;
  c: number;
  frames: readonly Frame[];
  /** Undefined where it is not known. */
  state: FeedState | undefined;
}

/** A commit on its way to the listeners of a session: encoded once, whoever reads it. */
export class FeedCommit {
  readonly after: number;
  readonly c: number;
  readonly frames: readonly Frame[];
  readonly state: FeedState | undefined;
  private readonly encoded: Partial<Record<FrameStyle, Buffer>> = {};

  constructor(private readonly parts: FeedCommitParts) {
    ({ after: this.after, c: this.c, frames: this.frames, state: this.state } = parts);
  }

  get lastTs(): number | undefined {
    return this.frames.at(-1)?.ts;
  }

  get chars(): number {
    return this.frames.reduce((sum, { json }) => sum + json.length, 0);
  }

  bytes(style: FrameStyle): Buffer {
    return (this.encoded[style] ??= Buffer.from(sseFrames(this.frames, style, this.parts.sessionId)));
  }
}

/** A text fragment of a running step, stamped with the time of the last stored event its reader has. */
export class FeedDelta {
  private readonly tail: string;
  private last?: { ts: number; isNamed: boolean; bytes: Buffer };

  constructor(
    readonly delta: LiveDelta,
    private readonly sessionId: string,
  ) {
    const payload = JSON.stringify(delta.payload);
    this.tail = `","type":"agent_message_delta","payload":${payload},"run_id":${JSON.stringify(delta.runId)}}\n\n`;
  }

  /** Readers are most often at the same event, so the last encoding is kept. */
  bytes(ts: number, isNamed = false): Buffer {
    if (this.last?.ts !== ts || this.last.isNamed !== isNamed) {
      const name = isNamed ? `event: ${this.sessionId}\n` : '';
      this.last = { ts, isNamed, bytes: Buffer.from(`${name}data: {"ts":"${isoMicros(ts)}${this.tail}`) };
    }
    return this.last.bytes;
  }
}
