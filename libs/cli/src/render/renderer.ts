import type { StreamItem } from '@margay/client';

/** Shows the items of a stream. */
export interface Renderer {
  item(item: StreamItem): void;
  /** A remark of the command itself, such as a lost connection. */
  note(text: string): void;
  /** Leaves the output at the start of a line. */
  end(): void;
}
