export interface Delta {
  agentId: string;
  depth: number;
  step: number;
  offset: number;
  text: string;
  followsC: number;
}

const COALESCE_MS = 50;

/** Sends the first fragment of a step at once and coalesces what follows to 50 ms per agent. */
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
    this.send(delta);
  }
}
