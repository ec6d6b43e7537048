import type { ChatMessage, ChatTool } from './chat-request';
import { conversationOf, type Conversation } from './conversation';

/** One tool call the scripted model makes. `arguments` as text is sent as it is, so it may be malformed JSON. */
export interface ScriptedToolCall {
  name: string;
  arguments?: Record<string, unknown> | string;
  /** The provider's call id; default `call_<request number>_<index>`. */
  id?: string;
}

export interface ScriptedUsage {
  promptTokens?: number;
  completionTokens?: number;
  cachedTokens?: number;
  reasoningTokens?: number;
}

/** The body of a failed answer; a string becomes its message. */
export interface ScriptedError {
  message: string;
  type?: string;
  param?: string | null;
  code?: string | null;
}

/** What the scripted model answers to one request. Everything is optional; `{}` is an empty, billed answer. */
export interface Answer {
  text?: string;
  toolCalls?: readonly ScriptedToolCall[];
  /** Default 100 prompt and 10 completion tokens; `null` sends none, as some compatible servers do. */
  usage?: ScriptedUsage | null;
  /** Default `tool_calls` with tool calls, else `stop`. */
  finishReason?: 'stop' | 'length' | 'tool_calls' | 'content_filter';
  /** How streamed text and arguments are cut: one delta, one per character, or pieces of so many characters. */
  chunks?: 'whole' | 'characters' | number;
  /** Pause before the first byte. */
  delayMs?: number;
  /** Pause between two stream events. */
  deltaDelayMs?: number;
  /** With 400 or more an error body is sent instead of an answer. */
  status?: number;
  error?: ScriptedError | string;
  /** Extra response headers, such as `retry-after`. */
  headers?: Readonly<Record<string, string>>;
  /** Destroys the socket after so many stream events (0 = right after the headers). */
  cutAfterChunks?: number;
  /** Falls silent after so many stream events, until the client gives up. */
  hangAfterChunks?: number;
  /** Never sends a byte, until the client gives up. */
  hang?: boolean;
}

/** One request as a script sees it. `n` counts the accepted requests of the server from 1. */
export interface ScriptRequest {
  n: number;
  model: string;
  messages: readonly ChatMessage[];
  tools: readonly ChatTool[];
}

export type ScriptFunction = (request: ScriptRequest) => Answer | Promise<Answer>;
/** A function of the request, or answers to be given one after the other. */
export type Script = ScriptFunction | readonly Answer[];

/** An answer of text only. */
export const answer = (text: string, more: Omit<Answer, 'text'> = {}): Answer => ({ ...more, text });

/** An answer that calls tools, in this order. */
export const callTools = (...toolCalls: ScriptedToolCall[]): Answer => ({ toolCalls });

/** Gives the answers one after the other, whichever conversation asks; a request beyond them is an error. */
export function sequence(answers: readonly (Answer | ScriptFunction)[]): ScriptFunction {
  let given = 0;
  return (request) => {
    const next = answers[given];
    if (next === undefined) throw new Error(`the script has ${answers.length} answers and was asked for one more`);
    given += 1;
    return typeof next === 'function' ? next(request) : next;
  };
}

/** A script that depends only on what the conversation holds, so it serves any number of sessions at once. */
export const byConversation =
  (script: (conversation: Conversation, request: ScriptRequest) => Answer | Promise<Answer>): ScriptFunction =>
  (request) =>
    script(conversationOf(request.messages), request);
