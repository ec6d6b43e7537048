import type { ModelImage, ModelMessage, ModelToolCall } from '@margay/engine';
import { wireCallId } from './wire-call-id';

/** `keep`: system messages stay where they are; `merge`: those after the first become marked user text. */
export type SystemMessages = 'keep' | 'merge';

const NOTHING_SAID = '(no content)';

/** JSON texts of messages by the message object: a conversation is serialised once, however often it is sent. */
const serialised = new WeakMap<ModelMessage, string>();

/** JSON text of the `messages` array. */
export function wireMessages(messages: readonly ModelMessage[], systemMessages: SystemMessages): string {
  const texts: string[] = [];
  let images: ModelImage[] = [];
  const merged = systemMessages === 'merge' ? mergeSystem(messages) : messages;
  for (const message of merged) {
    // Results carry text only, so their pictures follow as a message of the user.
    if (images.length > 0 && message.role !== 'tool') {
      texts.push(JSON.stringify(userMessage('[Images of the tool results above]', images)));
      images = [];
    }
    texts.push(textOf(message));
    if (message.role === 'tool' && message.images) images = [...images, ...message.images];
  }
  if (images.length > 0) texts.push(JSON.stringify(userMessage('[Images of the tool results above]', images)));
  return `[${texts.join(',')}]`;
}

function textOf(message: ModelMessage): string {
  const known = serialised.get(message);
  if (known !== undefined) return known;
  const text = JSON.stringify(toWire(message));
  serialised.set(message, text);
  return text;
}

function toWire(message: ModelMessage): object {
  switch (message.role) {
    case 'system':
      return { role: 'system', content: message.text };
    case 'user':
      return userMessage(message.text, message.images ?? []);
    case 'assistant':
      return assistantMessage(message.text, message.toolCalls);
    case 'tool':
      return { role: 'tool', tool_call_id: wireCallId(message.callId), content: message.text || NOTHING_SAID };
  }
}

function userMessage(text: string, images: readonly ModelImage[]): object {
  if (images.length === 0) return { role: 'user', content: text };
  const parts = images.map(({ mediaType, base64 }) => ({
    type: 'image_url',
    image_url: { url: `data:${mediaType};base64,${base64}` },
  }));
  return { role: 'user', content: [{ type: 'text', text }, ...parts] };
}

function assistantMessage(text: string, toolCalls: readonly ModelToolCall[]): object {
  if (toolCalls.length === 0) return { role: 'assistant', content: text || NOTHING_SAID };
  const calls = toolCalls.map(({ callId, name, argumentsText }) => ({
    id: wireCallId(callId),
    type: 'function',
    function: { name, arguments: validArguments(argumentsText) },
  }));
  return { role: 'assistant', content: text === '' ? null : text, tool_calls: calls };
}

/** Some servers parse the arguments of the history, and fail on what a model once got wrong. */
function validArguments(text: string): string {
  if (text.trim() === '') return '{}';
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? text : JSON.stringify({ arguments: value });
  } catch {
    return JSON.stringify({ malformed_arguments: text });
  }
}

/** For providers that take one system message, at the start, and that want user and assistant in turns. */
function mergeSystem(messages: readonly ModelMessage[]): ModelMessage[] {
  const merged: ModelMessage[] = [];
  messages.forEach((message, index) => {
    const turned: ModelMessage =
      message.role === 'system' && index > 0 ? { role: 'user', text: `<system>\n${message.text}\n</system>` } : message;
    const last = merged.at(-1);
    if (turned.role !== 'user' || last?.role !== 'user') {
      merged.push(turned);
      return;
    }
    const images = [...(last.images ?? []), ...(turned.images ?? [])];
    merged[merged.length - 1] = {
      role: 'user',
      text: `${last.text}\n\n${turned.text}`,
      ...(images.length > 0 ? { images } : {}),
    };
  });
  return merged;
}
