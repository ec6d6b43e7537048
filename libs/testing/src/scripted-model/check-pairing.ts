import { invalid } from './api-error';
import type { ChatMessage } from './chat-request';

/**
 * Every tool message answers a call of the assistant message right before it (other tool messages may stand between),
 * and every call is answered before anything else is said.
 * @throws {ApiError} 400 otherwise.
 */
export function checkPairing(messages: readonly ChatMessage[]): void {
  const unanswered = new Set<string>();
  let called = new Set<string>();
  let calledAt = -1;
  messages.forEach((message, index) => {
    if (message.role === 'tool') {
      checkAnswer(message.tool_call_id ?? '', index, called, unanswered);
      unanswered.delete(message.tool_call_id ?? '');
      return;
    }
    checkAllAnswered(unanswered, calledAt);
    called = callIds(message, index);
    calledAt = index;
    for (const id of called) unanswered.add(id);
  });
  checkAllAnswered(unanswered, calledAt);
}

function callIds(message: ChatMessage, index: number): Set<string> {
  const ids = (message.tool_calls ?? []).map((call) => call.id);
  const twice = ids.find((id, position) => ids.indexOf(id) !== position);
  if (twice !== undefined)
    throw invalid(`Duplicate value for 'tool_call_id' of '${twice}'.`, `messages.[${index}].tool_calls`);
  return new Set(ids);
}

function checkAnswer(id: string, index: number, called: Set<string>, unanswered: Set<string>): void {
  if (called.size === 0)
    throw invalid(
      "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.",
      `messages.[${index}].role`,
    );
  if (!called.has(id))
    throw invalid(
      `Invalid parameter: 'tool_call_id' of '${id}' not found in 'tool_calls' of previous message.`,
      `messages.[${index}].tool_call_id`,
    );
  if (!unanswered.has(id))
    throw invalid(`Duplicate value for 'tool_call_id' of '${id}'.`, `messages.[${index}].tool_call_id`);
}

function checkAllAnswered(unanswered: ReadonlySet<string>, calledAt: number): void {
  if (unanswered.size === 0) return;
  throw invalid(
    `An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. ` +
      `The following tool_call_ids did not have response messages: ${[...unanswered].join(', ')}`,
    `messages.[${calledAt}].role`,
  );
}
