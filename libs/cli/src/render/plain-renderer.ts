import type { MargayEvent, StreamItem } from '@margay/client';
import type { Terminal } from '../terminal';
import { cardOf } from './card';
import { noteOf } from './notes';
import type { Renderer } from './renderer';
import { oneLine, sanitize } from './sanitize';
import { NO_COLORS } from './style';
import { subjectOf } from './tool-result';

/** For logs and pipes: one line per event and no escape code; the final answer as it is, since it is the result. */
export class PlainRenderer implements Renderer {
  /** A message that may turn out to be the final answer. */
  #pending: { line: string; text: string } | undefined;

  constructor(private readonly terminal: Terminal) {}

  item(item: StreamItem): void {
    if (item.type === 'session_state') {
      if (item.waiting) this.note(`waiting for ${oneLine(item.waiting.kind)}`);
      return;
    }
    if (item.type === 'agent_message_delta') return;
    if (item.type === 'assistant') return this.#answer(item.payload.text);
    this.#settle();
    const line = `${clock(item.ts)} ${describe(item)}`;
    if (item.type === 'agent_message') this.#pending = { line, text: item.payload.text };
    else this.#write(line);
  }

  note(text: string): void {
    this.terminal.stderr.write(`${oneLine(text)}\n`);
  }

  end(): void {
    this.#settle();
  }

  #answer(text: string): void {
    if (this.#pending?.text === text) this.#pending = undefined;
    this.#settle();
    this.#write(sanitize(text).trimEnd());
  }

  #settle(): void {
    if (this.#pending) this.#write(this.#pending.line);
    this.#pending = undefined;
  }

  #write(line: string): void {
    this.terminal.stdout.write(`${line}\n`);
  }
}

const clock = (ts: string | undefined): string => oneLine(ts ?? '').slice(11, 19);

function describe(event: MargayEvent): string {
  const name = oneLine(event.type === 'unknown' ? event.wire_type : event.type);
  const detail = detailOf(event);
  return detail ? `${name} ${detail}` : name;
}

function detailOf(event: MargayEvent): string {
  switch (event.type) {
    case 'user':
    case 'user_steer':
    case 'agent_message':
      return oneLine(event.payload.text);
    case 'run_accepted':
      return oneLine(event.payload.run_id);
    case 'title_update':
      return oneLine(event.payload.title);
    case 'llm_call_start':
    case 'llm_call_end':
      return oneLine(event.payload.model);
    case 'tool_call':
      return oneLine(`${event.payload.tool_id} ${subjectOf(event.payload.tool_input)}`);
    case 'tool_result': {
      const { mark, tool, facts } = cardOf(event.payload, NO_COLORS);
      return `${mark} ${[tool, ...facts].join(' · ')}`;
    }
    case 'completion':
      return oneLine([event.payload.done_reason, event.payload.error ?? ''].join(' '));
    default:
      return noteOf(event) ?? '';
  }
}
