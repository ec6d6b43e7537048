// Chat-completions answers on the wire, plain and streamed.
import { setTimeout as sleep } from 'node:timers/promises';

const ARGUMENT_PIECE = 24;

/** The body of a plain answer. `answer` is `{ id, model, text, calls: [{ id, name, arguments }], finishReason, usage }`. */
export function completionBody(answer) {
  const message = { role: 'assistant', content: answer.text || null, refusal: null };
  if (answer.calls.length > 0) message.tool_calls = answer.calls.map(toWire);
  const choice = { index: 0, message, logprobs: null, finish_reason: answer.finishReason };
  return { ...envelope(answer), object: 'chat.completion', choices: [choice], usage: answer.usage };
}

/** Streams an answer; stops silently when the client leaves. */
export async function streamAnswer(answer, { response, includeUsage, deltaMs, signal }) {
  response.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8', 'cache-control': 'no-cache' });
  for (const chunk of chunksOf(answer, includeUsage)) {
    if (signal.aborted) return;
    response.write(`data: ${JSON.stringify(chunk)}\n\n`);
    if (deltaMs > 0) await sleep(deltaMs, undefined, { signal }).catch(rethrowUnless(signal));
  }
  if (!signal.aborted) response.end('data: [DONE]\n\n');
}

const rethrowUnless = (signal) => (error) => {
  if (!signal.aborted) throw error;
};

function* chunksOf(answer, includeUsage) {
  const head = { ...envelope(answer), object: 'chat.completion.chunk' };
  const withChoice = (delta, reason = null) => ({
    ...head,
    choices: [{ index: 0, delta, logprobs: null, finish_reason: reason }],
    ...(includeUsage && { usage: null }),
  });
  yield withChoice({ role: 'assistant', content: '', refusal: null });
  for (const content of answer.text.match(/\s*\S+\s?|\s+/g) ?? []) yield withChoice({ content });
  for (const [index, call] of answer.calls.entries()) {
    const { id, type, function: made } = toWire(call);
    yield withChoice({ tool_calls: [{ index, id, type, function: { name: made.name, arguments: '' } }] });
    for (const piece of pieces(made.arguments))
      yield withChoice({ tool_calls: [{ index, function: { arguments: piece } }] });
  }
  yield withChoice({}, answer.finishReason);
  if (includeUsage) yield { ...head, choices: [], usage: answer.usage };
}

const envelope = ({ id, model }) => ({ id, created: Math.floor(Date.now() / 1000), model });

const toWire = (call) => ({
  id: call.id,
  type: 'function',
  function: { name: call.name, arguments: JSON.stringify(call.arguments) },
});

/** By code points, so no piece ends inside a character. */
function pieces(text) {
  const points = [...text];
  const cut = Array.from({ length: Math.ceil(points.length / ARGUMENT_PIECE) }, (_, index) => index * ARGUMENT_PIECE);
  return cut.map((from) => points.slice(from, from + ARGUMENT_PIECE).join(''));
}
