export interface Delta {
  agentId: string;
  depth: number;
  step: number;
  /** Place of the text in its step, in UTF-16 units. */
  offset: number;
  text: string;
  followsC: number;
}

const COALESCE_MS = 50;
/** The bus drops messages above 1 MB, and a unit of text may take six bytes of JSON. */
const DELTA_MAX_CHARS = 64 * 1024;

/** Sends the first fragment of a step at once and coalesces what follows to 50 ms per agent; large ones in pieces. */
export class DeltaBuffer {
  private readonly waiting = new Map<string, Delta>();
  private readonly quietUntil = new Map<string, number>();
  private timer?: NodeJS.Timeout;

  constructor(private readonly send: (delta: Delta) => void) {}

  add(delta: Delta): void {
    const nowMs = performance.now();
    const held = this.waiting.get(delta.agentId);
    if (held && held.step === delta.step && held.offset + held.text.length === delta.offset) {
      held.text += delta.text;
      return;
    }
    if (held) this.emit(held);
    if (nowMs >= (this.quietUntil.get(delta.agentId) ?? 0)) return this.emit({ ...delta });
    this.waiting.set(delta.agentId, { ...delta });
    this.timer ??= setTimeout(() => this.flush(), COALESCE_MS);
  }

  flush(): void {
    clearTimeout(this.timer);
    delete this.timer;
    for (const delta of [...this.waiting.values()]) this.emit(delta);
  }

  private emit(delta: Delta): void {
    this.waiting.delete(delta.agentId);
    this.quietUntil.set(delta.agentId, performance.now() + COALESCE_MS);
    for (const piece of piecesOf(delta)) this.send(piece);
  }
}

function* piecesOf(delta: Delta): Iterable<Delta> {
  const { text, offset } = delta;
  if (text.length <= DELTA_MAX_CHARS) {
    yield delta;
    return;
  }
  for (let at = 0; at < text.length;) {
    const end = pieceEnd(text, at + DELTA_MAX_CHARS);
    yield { ...delta, offset: offset + at, text: text.slice(at, end) };
    at = end;
  }
}

/** Half a character cannot be sent. */
function pieceEnd(text: string, end: number): number {
  const isHigh = end < text.length && (text.charCodeAt(end - 1) & 0xfc00) === 0xd800;
  return isHigh ? end - 1 : end;
}
