import { invalid } from './api-error';
import { checkPairing } from './check-pairing';
import { checkTools } from './check-tools';
import { fromIssue, isObject } from './faults';
import { knownParameters, messageByRole, type ChatMessage, type ChatRequest, type ChatRole } from './chat-request';

/**
 * Checks a chat-completions body the way the real API does, with its words.
 * @throws {ApiError} 400 at the first violation.
 */
export function checkRequest(body: unknown): ChatRequest {
  if (!isObject(body)) throw invalid('We could not parse the JSON body of your request. It must be a JSON object.');
  for (const name of Object.keys(body))
    if (!knownParameters.has(name)) throw invalid(`Unrecognized request argument supplied: ${name}`);
  const model = body['model'];
  if (typeof model !== 'string' || model === '') throw invalid('you must provide a model parameter');
  const messages = checkMessages(body['messages']);
  checkPairing(messages);
  const tools = checkTools(body);
  const stream = checkBoolean(body, 'stream');
  return { model, messages, tools, stream, includeUsage: checkStreamOptions(body['stream_options'], stream) };
}

function checkMessages(messages: unknown): ChatMessage[] {
  if (messages === undefined)
    throw invalid("Missing required parameter: 'messages'.", 'messages', 'missing_required_parameter');
  if (!Array.isArray(messages))
    throw invalid("Invalid type for 'messages': expected an array of objects.", 'messages', 'invalid_type');
  if (messages.length === 0)
    throw invalid(
      "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead.",
      'messages',
      'empty_array',
    );
  return messages.map((message: unknown, index) => checkMessage(message, `messages[${index}]`));
}

function checkMessage(message: unknown, at: string): ChatMessage {
  if (!isObject(message)) throw invalid(`Invalid type for '${at}': expected an object.`, at, 'invalid_type');
  const role = message['role'];
  if (role === undefined)
    throw invalid(`Missing required parameter: '${at}.role'.`, `${at}.role`, 'missing_required_parameter');
  if (!isRole(role))
    throw invalid(
      `Invalid value: '${String(role)}'. Supported values are: 'system', 'assistant', 'user', 'function', 'tool', and 'developer'.`,
      `${at}.role`,
      'invalid_value',
    );
  const checked = messageByRole[role].safeParse(message);
  if (!checked.success) throw fromIssue(checked.error.issues[0], at);
  const result: ChatMessage = checked.data;
  const isEmpty = result.content === undefined || result.content === null;
  if (role === 'assistant' && isEmpty && result.tool_calls === undefined)
    throw invalid(`Invalid value for 'content': expected a string, got null.`, `${at}.content`, null);
  return result;
}

function checkStreamOptions(options: unknown, stream: boolean): boolean {
  if (options === undefined || options === null) return false;
  if (!stream)
    throw invalid("The 'stream_options' parameter is only allowed when 'stream' is enabled.", 'stream_options');
  if (!isObject(options))
    throw invalid("Invalid type for 'stream_options': expected an object.", 'stream_options', 'invalid_type');
  return checkBoolean(options, 'include_usage');
}

function checkBoolean(body: Record<string, unknown>, name: string): boolean {
  const value = body[name] ?? false;
  if (typeof value !== 'boolean')
    throw invalid(`Invalid type for '${name}': expected a boolean.`, name, 'invalid_type');
  return value;
}

const isRole = (role: unknown): role is ChatRole => typeof role === 'string' && Object.hasOwn(messageByRole, role);
