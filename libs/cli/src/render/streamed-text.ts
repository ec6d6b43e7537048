import type { EventOf } from '@margay/client';
import { PieceSanitizer, sanitize } from './sanitize';
import type { Screen } from './screen';
import type { Style } from './style';

type Delta = EventOf<'agent_message_delta'>['payload'];

/** The root's text as it streams; the stored text is printed again only where it differs from what was shown. */
export class StreamedText {
  #step: number | undefined;
  /** What deltas have given of the current step, as it came. */
  #held = '';
  /** The last stored message, which the final answer mostly repeats. */
  #shown = '';
  #pieces = new PieceSanitizer();

  constructor(
    private readonly screen: Screen,
    private readonly style: Style,
  ) {}

  delta({ text, offset, step }: Delta): void {
    if (step !== this.#step) this.#begin(step);
    if (offset < this.#held.length) this.#repeat(offset);
    if (offset > this.#held.length) {
      // Deltas were lost; the stored text will differ from what is held and so be printed whole.
      this.screen.text('…');
      this.#held = this.#held.padEnd(offset, '\0');
    }
    this.#held += text;
    this.screen.text(this.#pieces.push(text));
  }

  /** The authoritative text of a step. */
  message(text: string): void {
    this.#settle(text);
    this.#shown = text;
  }

  /** The final answer. */
  answer(text: string): void {
    if (this.#held || text !== this.#shown) this.#settle(text);
    this.#shown = '';
  }

  end(): void {
    this.screen.text(this.#pieces.flush());
    this.screen.fresh();
  }

  #settle(text: string): void {
    const held = this.#held;
    const rest = this.#pieces.flush();
    this.#reset();
    if (text === held) this.screen.text(rest);
    else if (held && text.startsWith(held)) this.screen.text(sanitize(rest + text.slice(held.length)));
    else {
      this.screen.fresh();
      if (held) this.screen.line(this.style.dim('revised:'));
      this.screen.text(sanitize(text));
    }
    this.screen.fresh();
  }

  #begin(step: number): void {
    this.#reset();
    this.screen.fresh();
    this.#step = step;
  }

  #repeat(offset: number): void {
    this.screen.fresh();
    this.screen.line(this.style.dim('the model call is repeated'));
    this.#held = this.#held.slice(0, offset);
    this.#pieces = new PieceSanitizer();
  }

  #reset(): void {
    this.#step = undefined;
    this.#held = '';
    this.#pieces = new PieceSanitizer();
  }
}
