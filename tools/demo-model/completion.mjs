// From a chat-completions request body to an answer.
import { decide } from './agent.mjs';
import { answerAside } from './aside.mjs';
import { PrefixMemory, tokensOf } from './usage.mjs';

export const MODEL_ID = 'margay-demo';
const ROLES = new Set(['system', 'developer', 'user', 'assistant', 'tool']);

/** A refused request: `status` and the body's `error` object. */
export class RequestError extends Error {
  constructor(status, message, param = null, code = null) {
    super(message);
    this.status = status;
    this.body = { error: { message, type: 'invalid_request_error', param, code } };
  }
}

export class Completions {
  #memory = new PrefixMemory();

  /** Answers one request; the same request always gets the same text, calls and call ids. */
  answer(body) {
    check(body);
    const toolNames = (body.tools ?? []).map((tool) => tool?.function?.name).filter(Boolean);
    const { promptTokens, cachedTokens, fingerprint } = this.#memory.measure(body.tools, body.messages);
    const aside = answerAside(body.messages, toolNames);
    const decided =
      aside === undefined
        ? decide(body.messages, body.tool_choice === 'none' ? [] : toolNames)
        : { text: aside, calls: [] };
    const key = fingerprint.replace(/[^A-Za-z0-9]/g, '').slice(0, 20);
    const calls = decided.calls.map((call, index) => ({ ...call, id: `call_${key}_${index}` }));
    const { text, isCut } = limit(decided.text, calls, body.max_completion_tokens ?? body.max_tokens);
    const finishReason = calls.length > 0 ? 'tool_calls' : isCut ? 'length' : 'stop';
    const usage = usageOf(promptTokens, cachedTokens, text, calls);
    return { id: `chatcmpl-${key}`, model: MODEL_ID, text, calls, finishReason, usage };
  }
}

function check(body) {
  if (typeof body !== 'object' || body === null) throw new RequestError(400, 'The request body must be a JSON object.');
  if (!body.model) throw new RequestError(400, 'you must provide a model parameter');
  if (body.model !== MODEL_ID)
    throw new RequestError(
      404,
      `The model \`${body.model}\` does not exist here; this server has only \`${MODEL_ID}\`.`,
      null,
      'model_not_found',
    );
  if (!Array.isArray(body.messages) || body.messages.length === 0)
    throw new RequestError(
      400,
      "Invalid 'messages': expected an array with minimum length 1.",
      'messages',
      'empty_array',
    );
  const unknown = body.messages.findIndex((message) => !ROLES.has(message?.role));
  if (unknown >= 0)
    throw new RequestError(
      400,
      `Invalid value for 'messages[${unknown}].role'.`,
      `messages[${unknown}].role`,
      'invalid_value',
    );
}

/** Cuts an answer at the client's limit, as a provider does; calls are never cut. */
function limit(text, calls, maxTokens) {
  if (calls.length > 0 || !maxTokens || tokensOf(text.length) <= maxTokens) return { text, isCut: false };
  return { text: text.slice(0, maxTokens * 4), isCut: true };
}

function usageOf(promptTokens, cachedTokens, text, calls) {
  const completionTokens = tokensOf(text.length + calls.reduce((sum, call) => sum + JSON.stringify(call).length, 0));
  return {
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
    total_tokens: promptTokens + completionTokens,
    prompt_tokens_details: { cached_tokens: cachedTokens, audio_tokens: 0 },
    completion_tokens_details: {
      reasoning_tokens: 0,
      audio_tokens: 0,
      accepted_prediction_tokens: 0,
      rejected_prediction_tokens: 0,
    },
  };
}
