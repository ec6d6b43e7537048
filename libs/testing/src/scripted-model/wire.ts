import type { Answer, ScriptedUsage } from './answer';

/** What every object of one answer carries. */
export interface AnswerIdentity {
  id: string;
  created: number;
  model: string;
}

interface ToolCallDelta {
  index: number;
  id?: string;
  type?: 'function';
  function: { name?: string; arguments: string };
}
type Delta = { role?: 'assistant'; content?: string | null; tool_calls?: ToolCallDelta[] };

/** The body of a plain (unstreamed) answer. */
export function completionBody(identity: AnswerIdentity, answer: Answer, n: number): object {
  const toolCalls = callsOf(answer, n);
  const message = {
    role: 'assistant',
    content: answer.text ?? (toolCalls.length > 0 ? null : ''),
    refusal: null,
    ...(toolCalls.length > 0 && {
      tool_calls: toolCalls.map(({ id, name, text }) => ({
        id,
        type: 'function',
        function: { name, arguments: text },
      })),
    }),
  };
  const choice = { index: 0, message, logprobs: null, finish_reason: finishReason(answer) };
  const usage = usageOf(answer.usage);
  return { ...identity, object: 'chat.completion', choices: [choice], ...(usage && { usage }) };
}

/** The server-sent events of a streamed answer, `[DONE]` included, each a whole `data:` frame. */
export function streamFrames(identity: AnswerIdentity, answer: Answer, n: number, includeUsage: boolean): string[] {
  const head = { ...identity, object: 'chat.completion.chunk' };
  const usage = usageOf(answer.usage);
  const base = includeUsage ? { ...head, usage: null } : head;
  const choice = (delta: Delta, reason: string | null) => ({
    ...base,
    choices: [{ index: 0, delta, logprobs: null, finish_reason: reason }],
  });
  const chunks: object[] = deltasOf(answer, n).map((delta) => choice(delta, null));
  chunks.push(choice({}, finishReason(answer)));
  if (includeUsage && usage) chunks.push({ ...head, choices: [], usage });
  return [...chunks.map((chunk) => frame(JSON.stringify(chunk))), frame('[DONE]')];
}

const frame = (data: string): string => `data: ${data}\n\n`;

function deltasOf(answer: Answer, n: number): Delta[] {
  const calls = callsOf(answer, n);
  const deltas: Delta[] = [{ role: 'assistant', content: answer.text === undefined && calls.length > 0 ? null : '' }];
  for (const content of pieces(answer.text ?? '', answer.chunks)) deltas.push({ content });
  calls.forEach(({ id, name, text }, index) => {
    deltas.push({ tool_calls: [{ index, id, type: 'function', function: { name, arguments: '' } }] });
    for (const part of pieces(text, answer.chunks))
      deltas.push({ tool_calls: [{ index, function: { arguments: part } }] });
  });
  return deltas;
}

function callsOf(answer: Answer, n: number): { id: string; name: string; text: string }[] {
  return (answer.toolCalls ?? []).map((call, index) => ({
    id: call.id ?? `call_${n}_${index}`,
    name: call.name,
    text: typeof call.arguments === 'string' ? call.arguments : JSON.stringify(call.arguments ?? {}),
  }));
}

/** Cuts by code points, so no piece ends inside a surrogate pair. */
function pieces(text: string, chunks: Answer['chunks'] = 'whole'): string[] {
  if (text === '') return [];
  if (chunks === 'whole') return [text];
  const size = chunks === 'characters' ? 1 : Math.max(1, chunks);
  const points = [...text];
  return Array.from({ length: Math.ceil(points.length / size) }, (_, index) =>
    points.slice(index * size, (index + 1) * size).join(''),
  );
}

const finishReason = (answer: Answer): string =>
  answer.finishReason ?? ((answer.toolCalls ?? []).length > 0 ? 'tool_calls' : 'stop');

function usageOf(usage: ScriptedUsage | null | undefined): object | undefined {
  if (usage === null) return undefined;
  const { promptTokens = 100, completionTokens = 10, cachedTokens = 0, reasoningTokens = 0 } = usage ?? {};
  return {
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
    total_tokens: promptTokens + completionTokens,
    prompt_tokens_details: { cached_tokens: cachedTokens, audio_tokens: 0 },
    completion_tokens_details: {
      reasoning_tokens: reasoningTokens,
      audio_tokens: 0,
      accepted_prediction_tokens: 0,
      rejected_prediction_tokens: 0,
    },
  };
}
