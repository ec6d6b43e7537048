import type { StreamItem } from '@margay/client';
import type { Terminal } from '../terminal';
import type { Renderer } from './renderer';
import { jsonLine, sanitize } from './sanitize';

/** One JSON document per line: stored events; `raw` adds deltas and states. */
export class JsonRenderer implements Renderer {
  constructor(
    private readonly terminal: Terminal,
    private readonly raw: boolean,
  ) {}

  item(item: StreamItem): void {
    if (!this.raw && (item.type === 'session_state' || item.type === 'agent_message_delta')) return;
    this.terminal.stdout.write(`${jsonLine(wireForm(item))}\n`);
  }

  note(): void {
    // Remarks are for people.
  }

  end(): void {
    // Every line is whole.
  }
}

/** An event of an unlisted type as the wire spelled it. */
function wireForm(item: StreamItem): unknown {
  if (item.type !== 'unknown') return item;
  const { wire_type: type, ts, payload, ...rest } = item;
  return { ts, ...rest, type, payload };
}

/** Nothing but the final text. */
export class QuietRenderer implements Renderer {
  #text = '';

  constructor(private readonly terminal: Terminal) {}

  item(item: StreamItem): void {
    if (item.type === 'assistant') this.#text = item.payload.text;
  }

  note(): void {
    // Asked to be quiet.
  }

  end(): void {
    if (this.#text) this.terminal.stdout.write(`${sanitize(this.#text).trimEnd()}\n`);
  }
}
