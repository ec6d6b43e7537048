import type { ChatCompletionChunk } from 'openai/resources/chat/completions';
import { AnswerCollector } from './collect-answer';

type Piece = { index?: number; id?: string; name?: string; args?: unknown };

/** Chunks as servers really send them, which their types do not allow. */
const chunk = (pieces: Piece[]): ChatCompletionChunk => {
  const tool_calls = pieces.map(({ index, id, name, args }) => ({ index, id, function: { name, arguments: args } }));
  return { choices: [{ index: 0, delta: { tool_calls }, finish_reason: null }] } as unknown as ChatCompletionChunk;
};
const END = { choices: [{ index: 0, delta: {}, finish_reason: 'tool_calls' }] } as unknown as ChatCompletionChunk;

function callsOf(...chunks: Piece[][]): [string, string, string][] {
  const collector = new AnswerCollector();
  for (const pieces of chunks) collector.add(chunk(pieces));
  collector.add(END);
  const { toolCalls } = collector.answer({ model: 'm', chars: 0 });
  return toolCalls.map(({ providerCallId, name, argumentsText }) => [providerCallId, name, argumentsText]);
}

it('puts interleaved calls together by index', () => {
  const calls = callsOf(
    [{ index: 0, id: 'a', name: 'one', args: '' }],
    [{ index: 1, id: 'b', name: 'two', args: '{"x"' }],
    [{ index: 0, args: '{}' }],
    [{ index: 1, args: ':1}' }],
  );
  expect(calls).toEqual([
    ['a', 'one', '{}'],
    ['b', 'two', '{"x":1}'],
  ]);
});

it('takes several calls from one chunk', () => {
  const calls = callsOf([
    { index: 0, id: 'a', name: 'one', args: '{}' },
    { index: 1, id: 'b', name: 'two', args: '{}' },
  ]);
  expect(calls.map(([, name]) => name)).toEqual(['one', 'two']);
});

it('goes by ids where there are no indexes', () => {
  const calls = callsOf(
    [{ id: 'a', name: 'one', args: '{"x":' }],
    [{ id: 'a', args: '1}' }],
    [{ id: 'b', name: 'two', args: '{}' }],
  );
  expect(calls).toEqual([
    ['a', 'one', '{"x":1}'],
    ['b', 'two', '{}'],
  ]);
});

it('takes a piece without index and id for the last call', () => {
  expect(callsOf([{ id: 'a', name: 'one', args: '{"x":' }], [{ args: '1}' }])).toEqual([['a', 'one', '{"x":1}']]);
});

it('starts another call with a name behind whole arguments where nothing else tells them apart', () => {
  const calls = callsOf([{ name: 'one', args: '{}' }], [{ name: 'one', args: '{}' }]);
  expect(calls).toEqual([
    ['', 'one', '{}'],
    ['', 'one', '{}'],
  ]);
});

it('takes another id at the same index for another call', () => {
  const calls = callsOf(
    [{ index: 0, id: 'a', name: 'one', args: '{}' }],
    [{ index: 0, id: 'b', name: 'two', args: '{}' }],
  );
  expect(calls.map(([id]) => id)).toEqual(['a', 'b']);
});

it('keeps one call whose id and name are repeated with each piece', () => {
  const calls = callsOf(
    [{ index: 0, id: 'a', name: 'one', args: '{"x"' }],
    [{ index: 0, id: 'a', name: 'one', args: ':1}' }],
  );
  expect(calls).toEqual([['a', 'one', '{"x":1}']]);
});

it('takes arguments that are an object already', () => {
  expect(callsOf([{ index: 0, id: 'a', name: 'one', args: { x: 1 } }])).toEqual([['a', 'one', '{"x":1}']]);
});

it('takes a whole message instead of pieces', () => {
  const collector = new AnswerCollector();
  const message = { choices: [{ index: 0, message: { content: 'Hello.' }, finish_reason: 'stop' }] };
  expect(collector.add(message as unknown as ChatCompletionChunk)).toBe('Hello.');
  expect(collector.answer({ model: 'm', chars: 0 })).toMatchObject({
    text: 'Hello.',
    finishReason: 'stop',
    model: 'm',
  });
});

it('takes usage that comes without choices', () => {
  const collector = new AnswerCollector();
  collector.add({ choices: null, usage: { prompt_tokens: 5, completion_tokens: 1 } } as unknown as ChatCompletionChunk);
  expect(collector.answer({ model: 'm', chars: 0 }).usage).toMatchObject({ inputTokens: 5, outputTokens: 1 });
});

it('never lets a wrong count cost the answer', () => {
  const collector = new AnswerCollector();
  const usage = {
    prompt_tokens: 10.4,
    completion_tokens: -3,
    prompt_tokens_details: { cached_tokens: 'many' },
    completion_tokens_details: { reasoning_tokens: 1e300 },
  };
  collector.add({ choices: null, usage } as unknown as ChatCompletionChunk);
  expect(collector.answer({ model: 'm', chars: 0 }).usage).toEqual({
    inputTokens: 10,
    outputTokens: 0,
    cacheReadTokens: 0,
    cacheCreationTokens: 0,
    reasoningTokens: 0,
  });
});

describe('an answer that does not end', () => {
  const MEGABYTE = 'x'.repeat(1024 * 1024);
  const tooLong = { kind: 'server', message: "the model's answer is longer than 8388608 characters" };
  const text = { choices: [{ index: 0, delta: { content: MEGABYTE } }] } as unknown as ChatCompletionChunk;

  it.each([
    ['in its text', text],
    ['in the arguments of a call', chunk([{ index: 0, args: MEGABYTE }])],
    ['in arguments that are no text', chunk([{ index: 0, args: [MEGABYTE] }])],
  ])('is given up %s', (_, more) => {
    const collector = new AnswerCollector();
    for (let n = 0; n < 7; n++) collector.add(more);
    expect(() => {
      for (let n = 0; n < 2; n++) collector.add(more);
    }).toThrow(expect.objectContaining(tooLong));
  });

  it('is given up where it goes on with calls', () => {
    const collector = new AnswerCollector();
    expect(() => {
      for (let n = 0; n < 50_000; n++) collector.add(chunk([{ index: n, name: 'x' }]));
    }).toThrow(expect.objectContaining(tooLong));
  });
});
