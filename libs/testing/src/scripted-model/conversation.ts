import { textOf, type ChatMessage } from './chat-request';

/** A tool call with what came back for it. */
export interface ConversationResult {
  id: string;
  name: string;
  /** Parsed when it is JSON, else the raw text. */
  arguments: unknown;
  content: string;
}

/** What happened since the newest user message, and that message. */
export interface Conversation {
  /** All system and developer texts, joined by a blank line. */
  system: string;
  /** The newest user message; empty if there is none. */
  user: string;
  /** Assistant messages since it: 0 on a run's first model call. */
  step: number;
  results: readonly ConversationResult[];
}

/** Reads a message list the way a script wants to decide on it. */
export function conversationOf(messages: readonly ChatMessage[]): Conversation {
  const start = messages.findLastIndex((message) => message.role === 'user');
  const turn = messages.slice(start + 1);
  const system = messages.filter((message) => message.role === 'system' || message.role === 'developer').map(textOf);
  return {
    system: system.join('\n\n'),
    user: start < 0 ? '' : textOf(messages[start]),
    step: turn.filter((message) => message.role === 'assistant').length,
    results: resultsOf(turn),
  };
}

function resultsOf(turn: readonly ChatMessage[]): ConversationResult[] {
  const calls = turn.flatMap((message) => message.tool_calls ?? []);
  return turn.flatMap((message) => {
    const call = calls.find((candidate) => message.role === 'tool' && candidate.id === message.tool_call_id);
    if (call === undefined) return [];
    const { name, arguments: text } = call.function;
    return [{ id: call.id, name, arguments: parsed(text), content: textOf(message) }];
  });
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch (error) {
    if (error instanceof SyntaxError) return text;
    throw error;
  }
}
