import { StringDecoder } from 'node:string_decoder';

const MAX_CHARS = 1_000_000;
/** Cutting the front only now and then keeps appending linear. */
const SLACK_CHARS = 100_000;

/** The last million characters of a stream, addressed by their position in the whole. */
export class RetainedText {
  private text = '';
  private total = 0;
  private readonly decoder = new StringDecoder('utf8');
  private waiters: (() => void)[] = [];

  get end(): number {
    return this.total;
  }

  get start(): number {
    return this.total - this.text.length;
  }

  append(bytes: Buffer): void {
    const added = this.decoder.write(bytes);
    this.total += added.length;
    this.text += added;
    if (this.text.length > MAX_CHARS + SLACK_CHARS) this.text = this.text.slice(-MAX_CHARS);
    this.wake();
  }

  /** Text from a position on, and how many characters of it are gone. */
  from(cursor: number): { text: string; missed: number } {
    const missed = Math.max(0, this.start - cursor);
    return { text: this.text.slice(Math.max(0, cursor - this.start)), missed };
  }

  wake(): void {
    const waiters = this.waiters;
    this.waiters = [];
    for (const waiter of waiters) waiter();
  }

  /** Resolves when there is text beyond the cursor, when it is over, or when the time is up. */
  async waitBeyond(
    cursor: number,
    options: { waitMs: number; signal: AbortSignal; isOver: () => boolean },
  ): Promise<void> {
    const deadline = performance.now() + options.waitMs;
    while (this.total <= cursor && !options.isOver()) {
      options.signal.throwIfAborted();
      const left = deadline - performance.now();
      if (left <= 0) return;
      await this.nextChange(left, options.signal);
    }
  }

  private nextChange(waitMs: number, signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const finish = (): void => {
        clearTimeout(timer);
        signal.removeEventListener('abort', finish);
        resolve();
      };
      const timer = setTimeout(finish, waitMs);
      signal.addEventListener('abort', finish);
      this.waiters.push(finish);
    });
  }
}
