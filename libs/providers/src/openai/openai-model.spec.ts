import { createServer, type Server } from 'node:http';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { ModelFailure, type ModelMessage, type ModelRequest } from '@margay/engine';
import { answer, callTools, ScriptedModelServer, type Answer, type ScriptedModelOptions } from '@margay/testing';
import { listModels, openAiModel, type OpenAiModelOptions } from '../index';

const KEY = 'sk-secret-1234567890';
const open = new Set<{ close: () => unknown }>();

afterEach(async () => {
  for (const server of open) await server.close();
  open.clear();
});

async function serve(
  script: ScriptedModelOptions['script'],
  options: ScriptedModelOptions = {},
): Promise<ScriptedModelServer> {
  const server = await ScriptedModelServer.start({ ...(script ? { script } : {}), apiKey: KEY, ...options });
  open.add(server);
  return server;
}

const request = (messages: ModelMessage[] = [{ role: 'user', text: 'Hi.' }]): ModelRequest => ({
  model: 'm',
  messages,
  tools: [{ name: 'echo', description: 'Echoes.', parameters: { type: 'object', properties: {} } }],
});

function call(
  baseUrl: string,
  {
    messages,
    signal = new AbortController().signal,
    onText = () => undefined,
    ...options
  }: Partial<OpenAiModelOptions> & {
    messages?: ModelMessage[];
    signal?: AbortSignal;
    onText?: (text: string) => void;
  } = {},
) {
  return openAiModel({ baseUrl, apiKey: KEY, ...options }).call(request(messages), { signal, onText });
}

async function failureOf(promise: Promise<unknown>): Promise<ModelFailure> {
  const error: unknown = await promise.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  if (error instanceof ModelFailure) return error;
  throw new Error(`expected a ModelFailure, got ${String(error)}`);
}

describe('an answer', () => {
  it('is streamed with its white space, and told whole with its usage', async () => {
    const usage = { promptTokens: 30, completionTokens: 7, cachedTokens: 20, reasoningTokens: 2 };
    const server = await serve([answer('  two \n words', { chunks: 'characters', usage })]);
    const texts: string[] = [];
    const result = await call(server.baseUrl, { onText: (text) => texts.push(text) });
    expect(texts.join('')).toBe('  two \n words');
    expect(texts.length).toBeGreaterThan(5);
    expect(result).toMatchObject({
      text: '  two \n words',
      toolCalls: [],
      finishReason: 'stop',
      usage: { inputTokens: 30, outputTokens: 7, cacheReadTokens: 20, reasoningTokens: 2, cacheCreationTokens: 0 },
    });
  });

  it('holds its tool calls in order, put together from pieces', async () => {
    const calls = callTools({ name: 'echo', arguments: { text: 'a "b"' } }, { name: 'echo', arguments: '{"broken": ' });
    const server = await serve([{ ...calls, chunks: 3 }]);
    expect(await call(server.baseUrl)).toMatchObject({
      finishReason: 'tool_calls',
      toolCalls: [
        { name: 'echo', argumentsText: '{"text":"a \\"b\\""}' },
        { name: 'echo', argumentsText: '{"broken": ' },
      ],
    });
  });

  it('is estimated where the server counts no tokens', async () => {
    const server = await serve([answer('four score', { usage: null })]);
    const { usage } = await call(server.baseUrl);
    expect(usage.outputTokens).toBe(3);
    expect(usage.inputTokens).toBeGreaterThan(10);
  });

  it.each(['length', 'content_filter'] as const)('tells that it ended by %s', async (finishReason) => {
    const server = await serve([answer('cut', { finishReason })]);
    expect(await call(server.baseUrl)).toMatchObject({ finishReason });
  });
});

describe('a request', () => {
  const image = { mediaType: 'image/png', base64: 'AAAA' };
  const conversation: ModelMessage[] = [
    { role: 'system', text: 'You are a cat.' },
    { role: 'user', text: 'Look.', images: [image] },
    {
      role: 'assistant',
      text: '',
      toolCalls: [
        { callId: `${'a'.repeat(32)}.3.1.0`, name: 'echo', argumentsText: '' },
        { callId: `${'a'.repeat(32)}.3.1.1`, name: 'echo', argumentsText: '{"te' },
      ],
    },
    { role: 'tool', callId: `${'a'.repeat(32)}.3.1.0`, text: '', isError: false, images: [image] },
    { role: 'tool', callId: `${'a'.repeat(32)}.3.1.1`, text: 'ERROR: no', isError: true },
    { role: 'system', text: 'Mind the budget.' },
    { role: 'assistant', text: '', toolCalls: [] },
    { role: 'user', text: 'Go on.' },
  ];

  it('passes the checks of a strict server, whatever the conversation holds', async () => {
    const server = await serve([answer('ok')]);
    await call(server.baseUrl, { messages: conversation });
    const [{ body } = { body: undefined }] = server.requests;
    expect(body).toMatchObject({ model: 'm', stream: true, stream_options: { include_usage: true } });
    const { messages } = body as { messages: { role: string; tool_calls?: unknown[]; content: unknown }[] };
    expect(messages.map(({ role }) => role)).toEqual([
      'system',
      'user',
      'assistant',
      'tool',
      'tool',
      'user',
      'system',
      'assistant',
      'user',
    ]);
    expect(messages[2]?.tool_calls).toEqual([
      { id: 'call_3_1_0', type: 'function', function: { name: 'echo', arguments: '{}' } },
      { id: 'call_3_1_1', type: 'function', function: { name: 'echo', arguments: '{"malformed_arguments":"{\\"te"}' } },
    ]);
    expect(messages[5]?.content).toEqual([
      { type: 'text', text: '[Images of the tool results above]' },
      { type: 'image_url', image_url: { url: 'data:image/png;base64,AAAA' } },
    ]);
  });

  it('turns later system messages into marked user text for providers that refuse them', async () => {
    const server = await serve([answer('ok')]);
    await call(server.baseUrl, {
      systemMessages: 'merge',
      messages: [
        { role: 'system', text: 'You are a cat.' },
        { role: 'user', text: 'Hi.' },
        { role: 'system', text: 'It is Monday.' },
      ],
    });
    expect(server.requests[0]?.messages).toEqual([
      { role: 'system', content: 'You are a cat.' },
      { role: 'user', content: 'Hi.\n\n<system>\nIt is Monday.\n</system>' },
    ]);
  });

  it('is the same text as a plain serialisation, however often its messages were sent before', async () => {
    const server = await serve(() => answer('ok'));
    const model = openAiModel({ baseUrl: server.baseUrl, apiKey: KEY });
    const messages: ModelMessage[] = [{ role: 'user', text: 'One.' }];
    const options = { signal: new AbortController().signal, onText: () => undefined };
    const { tools } = request();
    for (let turn = 0; turn < 3; turn += 1) {
      await model.call({ model: 'm', messages: [...messages], tools }, options);
      messages.push({ role: 'assistant', text: `Answer ${turn}.`, toolCalls: [] }, { role: 'user', text: 'More.' });
    }
    const sent = server.requests.map(({ messages: list }) => list);
    expect(sent[2]).toEqual([
      { role: 'user', content: 'One.' },
      { role: 'assistant', content: 'Answer 0.' },
      { role: 'user', content: 'More.' },
      { role: 'assistant', content: 'Answer 1.' },
      { role: 'user', content: 'More.' },
    ]);
  });

  it('carries headers of its own, and no authorization without a key', async () => {
    const server = await ScriptedModelServer.start();
    open.add(server);
    await call(server.baseUrl, { apiKey: '', headers: { 'x-team': 'cats' } });
    expect(server.requests[0]?.headers).toMatchObject({ 'x-team': 'cats' });
    expect(server.requests[0]?.headers.authorization).toBeUndefined();
  });
});

describe('a failure', () => {
  it.each<[Answer, string]>([
    [{ status: 400, error: { message: 'odd', code: null } }, 'bad_request'],
    [{ status: 400, error: { message: 'long', code: 'context_length_exceeded' } }, 'context_window'],
    [{ status: 400, error: "This model's maximum context length is 8 tokens" }, 'context_window'],
    [{ status: 400, error: { message: 'no', code: 'content_policy_violation' } }, 'content_policy'],
    [{ status: 400, error: 'Your credit balance is too low' }, 'quota'],
    [{ status: 401, error: `Incorrect API key provided: ${KEY}` }, 'authentication'],
    [{ status: 403, error: 'forbidden' }, 'permission'],
    [{ status: 404, error: { message: 'The model `m` does not exist', code: 'model_not_found' } }, 'invalid_model'],
    [{ status: 404, error: 'no such path' }, 'bad_request'],
    [{ status: 408, error: 'slow' }, 'timeout'],
    [{ status: 429, error: { message: 'slow down', code: 'rate_limit_exceeded' } }, 'rate_limit'],
    [{ status: 429, error: { message: 'spent', code: 'insufficient_quota' } }, 'quota'],
    [{ status: 500, error: 'oops' }, 'server'],
    [{ status: 503, error: 'overloaded' }, 'server'],
    [{ text: 'half an answer', chunks: 1, cutAfterChunks: 4 }, 'connection'],
    [{ cutAfterChunks: 0 }, 'connection'],
  ])('of %j is %s', async (scripted, kind) => {
    const server = await serve(() => scripted);
    const failure = await failureOf(call(server.baseUrl));
    expect(failure.kind).toBe(kind);
    expect(failure.message).not.toContain('secret');
    expect(server.requests).toHaveLength(1);
  });

  it.each([
    [{ 'retry-after': '7' }, 7_000],
    [{ 'retry-after-ms': '250' }, 250],
  ])('tells how long to wait by %j', async (headers, retryAfterMs) => {
    const server = await serve([{ status: 429, error: 'slow down', headers }]);
    expect(await failureOf(call(server.baseUrl))).toMatchObject({ retryAfterMs });
  });

  it('of a server that is not there is a failed connection', async () => {
    const server = await serve([]);
    const { baseUrl } = server;
    await server.close();
    const failure = await failureOf(call(baseUrl));
    expect(failure).toMatchObject({ kind: 'connection', message: expect.stringContaining("can't be reached") });
  });

  it('is what a stream tells that ends with an error', async () => {
    const baseUrl = await raw([
      '{"choices":[{"delta":{"content":"Hi"}}]}',
      '{"error":{"message":"boom","type":"server_error"}}',
    ]);
    expect(await failureOf(call(baseUrl))).toMatchObject({ kind: 'server' });
  });

  it('is an answer that just ends', async () => {
    const baseUrl = await raw(['{"choices":[{"delta":{"content":"Hi"}}]}']);
    expect(await failureOf(call(baseUrl))).toMatchObject({ kind: 'connection' });
  });
});

it.each([{ hang: true }, { text: 'one two three', chunks: 1, hangAfterChunks: 3 }])(
  'closes the connection of %j at once when it is aborted',
  async (scripted) => {
    const server = await serve([scripted]);
    const stop = new AbortController();
    const calling = call(server.baseUrl, { signal: stop.signal });
    await server.waitForRequests(1);
    const reason = new Error('stopped');
    stop.abort(reason);
    await expect(calling).rejects.toBe(reason);
    await server.requests[0]?.done;
    expect(server.requests[0]?.aborted).toBe(true);
  },
);

it('lists models by name', async () => {
  const server = await serve(undefined, { models: ['b', 'a'] });
  expect(await listModels({ baseUrl: server.baseUrl, apiKey: KEY })).toEqual(['a', 'b']);
  expect(await failureOf(listModels({ baseUrl: server.baseUrl, apiKey: 'wrong' }))).toMatchObject({
    kind: 'authentication',
  });
});

it('is given up on where a provider sends a line without end', async () => {
  const line = JSON.stringify({ choices: [{ index: 0, delta: { content: 'x'.repeat(9 * 1024 * 1024) } }] });
  const failure = await failureOf(call(await raw([line])));
  expect([failure.kind, failure.message]).toEqual([
    'server',
    'the model provider sent a line of more than 8388608 bytes',
  ]);
});

/** A server that streams these chunks and ends, whatever it is asked. */
async function raw(chunks: readonly string[]): Promise<string> {
  const server: Server = createServer((_request, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.end(chunks.map((chunk) => `data: ${chunk}\n\n`).join(''));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  open.add({
    close: () => {
      server.closeAllConnections();
      return new Promise((resolve) => server.close(resolve));
    },
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`;
}
