import type { Output } from '../terminal';
import { cut } from './sanitize';
import type { Style } from './style';

/** Output that knows whether it stands at the start of a line, with one live line at its foot that the next text replaces. */
export class Screen {
  #isAtStart = true;
  #hasLive = false;

  constructor(
    private readonly output: Output,
    private readonly style: Style,
  ) {}

  /** A whole line, begun on a fresh one. Its text must be harmless already. */
  line(text: string): void {
    this.fresh();
    this.output.write(`${text}\n`);
  }

  /** Text that goes on where the last one ended. */
  text(text: string): void {
    if (!text) return;
    this.clear();
    this.output.write(text);
    this.#isAtStart = text.endsWith('\n');
  }

  /** Replaces the live line. Streamed text is left alone. */
  live(text: string): void {
    if (!this.#isAtStart) return;
    this.clear();
    this.output.write(this.style.dim(cut(text, this.output.columns - 1)));
    this.#hasLive = true;
  }

  /** Ends an open line. */
  fresh(): void {
    this.clear();
    if (!this.#isAtStart) this.output.write('\n');
    this.#isAtStart = true;
  }

  /** Takes the live line away. */
  clear(): void {
    if (this.#hasLive) this.output.write('\r\x1b[2K');
    this.#hasLive = false;
  }
}
