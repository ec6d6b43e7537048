// The scripted answers as wire text, put together without building objects.
import { argumentsOf, shapeOf } from './settings.mjs';

const USAGE =
  '"usage":{"prompt_tokens":100,"completion_tokens":10,"total_tokens":110,"prompt_tokens_details":{"cached_tokens":90}}';
const TITLE = 'Bench title';

/** What to answer: `{ id, model, calls: [{ id, arguments }], words, isAside, tool }`. Requests without tools are asides. */
export function planAnswer(request, settings, number) {
  const { rounds, parallel, tokens } = shapeOf(request.model, settings);
  const id = `chatcmpl-${number}`;
  const isFinal = !request.hasTools || Math.floor(request.results / parallel) >= rounds;
  const calls = Array.from({ length: isFinal ? 0 : parallel }, (_, index) => ({
    id: `call_${number}_${index}`,
    arguments: argumentsOf(settings.arguments, request.results + index),
  }));
  const words = request.hasTools ? Array.from({ length: isFinal ? tokens : 0 }, (_, index) => `word${index}`) : [TITLE];
  return { id, model: request.model, tool: settings.tool, calls, words, isAside: !request.hasTools };
}

const head = (plan, object) =>
  `{"id":"${plan.id}","object":"${object}","created":1700000000,"model":${JSON.stringify(plan.model)}`;

/** A plain answer. */
export function plainBody(plan) {
  const calls = plan.calls.map(
    (call) =>
      `{"id":"${call.id}","type":"function","function":{"name":${JSON.stringify(plan.tool)},"arguments":${JSON.stringify(call.arguments)}}}`,
  );
  const message =
    calls.length > 0
      ? `{"role":"assistant","content":null,"tool_calls":[${calls.join()}]}`
      : `{"role":"assistant","content":${JSON.stringify(plan.words.join(' '))}}`;
  return `${head(plan, 'chat.completion')},"choices":[{"index":0,"message":${message},"logprobs":null,"finish_reason":"${reasonOf(plan)}"}],${USAGE}}`;
}

const reasonOf = (plan) => (plan.calls.length > 0 ? 'tool_calls' : 'stop');

/** A streamed answer: `start`, one frame per word, `end`. */
export function streamFrames(plan, includeUsage) {
  const opening = head(plan, 'chat.completion.chunk');
  const frame = (delta, reason = 'null') =>
    `data: ${opening},"choices":[{"index":0,"delta":${delta},"finish_reason":${reason}}]}\n\n`;
  const calls = plan.calls.flatMap((call, index) => [
    frame(
      `{"tool_calls":[{"index":${index},"id":"${call.id}","type":"function","function":{"name":${JSON.stringify(plan.tool)},"arguments":""}}]}`,
    ),
    frame(`{"tool_calls":[{"index":${index},"function":{"arguments":${JSON.stringify(call.arguments)}}}]}`),
  ]);
  const usage = includeUsage ? `data: ${opening},"choices":[],${USAGE}}\n\n` : '';
  return {
    start: frame(`{"role":"assistant","content":${plan.calls.length > 0 ? 'null' : '""'}}`) + calls.join(''),
    word: (text, isFirst) => frame(`{"content":${JSON.stringify(isFirst ? text : ` ${text}`)}}`),
    end: `${frame('{}', `"${reasonOf(plan)}"`)}${usage}data: [DONE]\n\n`,
  };
}
