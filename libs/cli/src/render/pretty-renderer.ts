import { statusOf, type EventOf, type MargayEvent, type StreamItem } from '@margay/client';
import type { Terminal } from '../terminal';
import { cardOf } from './card';
import { noteOf } from './notes';
import type { Renderer } from './renderer';
import { cut, oneLine, sanitize } from './sanitize';
import { Screen } from './screen';
import type { Style } from './style';
import { StreamedText } from './streamed-text';
import { subjectOf } from './tool-result';

/** For people: text as it comes, a card per finished call, dim lines for the rest, one live line for what runs. */
export class PrettyRenderer implements Renderer {
  readonly #screen: Screen;
  readonly #text: StreamedText;
  #root: string | undefined;

  constructor(
    terminal: Terminal,
    private readonly style: Style,
    /** Whether the user's own messages are shown too. */
    private readonly showsUser: boolean,
  ) {
    this.#screen = new Screen(terminal.stdout, style);
    this.#text = new StreamedText(this.#screen, style);
  }

  item(item: StreamItem): void {
    if (item.type === 'session_state') return this.#state(item);
    const { depth, agent_id: agent } = item.payload as { depth?: unknown; agent_id?: unknown };
    if (depth === 0 && typeof agent === 'string') this.#root = agent;
    this.#event(item);
  }

  note(text: string): void {
    this.#screen.line(this.style.dim(oneLine(text)));
  }

  end(): void {
    this.#text.end();
    this.#screen.clear();
  }

  #event(event: MargayEvent): void {
    switch (event.type) {
      case 'agent_message_delta':
        return event.payload.depth === 0 ? this.#text.delta(event.payload) : undefined;
      case 'agent_message':
        return event.payload.depth === 0 ? this.#text.message(event.payload.text) : undefined;
      case 'assistant':
        return this.#text.answer(event.payload.text);
      case 'user':
      case 'user_steer':
        return this.#user(event.type === 'user' ? '›' : '→', event.payload.text);
      case 'llm_call_start':
        return this.#screen.live(`${oneLine(event.payload.model)} …`);
      case 'tool_call':
        return this.#call(event.payload);
      case 'tool_result':
        return this.#result(event.payload);
      case 'completion':
        return this.#completion(event.payload);
      default: {
        const note = noteOf(event);
        if (note) this.note(note);
      }
    }
  }

  #user(mark: string, text: string): void {
    if (this.showsUser || mark === '→') this.#screen.line(this.style.bold(`${mark} ${sanitize(text).trimEnd()}`));
  }

  #call({ tool_id: tool, tool_input: input, agent_id: agent }: EventOf<'tool_call'>['payload']): void {
    const who = this.#isRoot(agent) ? '' : `agent ${oneLine(agent)} · `;
    this.#screen.live(`${who}${oneLine(tool)} ${oneLine(subjectOf(input))} …`);
  }

  #result(payload: EventOf<'tool_result'>['payload']): void {
    if (!this.#isRoot(payload.agent_id)) return;
    const { mark, tool, facts, body } = cardOf(payload, this.style);
    const paint = mark === '●' ? this.style.green : mark === '✗' ? this.style.red : this.style.cyan;
    const [subject, ...rest] = facts;
    const head = [subject ? `${tool} ${subject}` : tool, ...rest].join(' · ');
    this.#screen.line(`${paint(mark)} ${head}`);
    for (const line of body) this.#screen.line(`    ${line}`);
  }

  #completion(payload: EventOf<'completion'>['payload']): void {
    const status = statusOf(payload);
    if (status === 'completed') return;
    const why = payload.error ?? payload.last_error ?? payload.blocked_code ?? payload.done_reason;
    this.#screen.line(`${this.style.red('✗')} ${status}: ${cut(oneLine(why), 400)}`);
  }

  #state({ waiting, queue_position: position }: Extract<StreamItem, { type: 'session_state' }>): void {
    if (waiting) this.note(`waiting for you: ${waiting.kind}`);
    else if (position !== undefined) this.#screen.live(`queued, position ${position} …`);
  }

  #isRoot(agent: string): boolean {
    return this.#root === undefined || agent === this.#root;
  }
}
