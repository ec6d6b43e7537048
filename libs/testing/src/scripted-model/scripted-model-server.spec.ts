import OpenAI, { APIConnectionError, APIUserAbortError, BadRequestError, NotFoundError, RateLimitError } from 'openai';
import { answer, byConversation, callTools, sequence, type Answer, type Script } from './answer';
import { ScriptedModelServer, type ScriptedModelOptions } from './scripted-model-server';

let server: ScriptedModelServer;
let client: OpenAI;

async function start(options: ScriptedModelOptions | Script): Promise<void> {
  server = await ScriptedModelServer.start(
    typeof options === 'function' || Array.isArray(options)
      ? { script: options as Script }
      : (options as ScriptedModelOptions),
  );
  client = new OpenAI({ baseURL: server.baseUrl, apiKey: 'test', maxRetries: 0 });
}

afterEach(() => server.close());

const user = { role: 'user', content: 'go' } as const;
const tools: OpenAI.ChatCompletionTool[] = [
  {
    type: 'function',
    function: { name: 'read_file', parameters: { type: 'object', properties: { path: { type: 'string' } } } },
  },
];
const stream = (signal?: AbortSignal) =>
  client.chat.completions.create(
    { model: 'm', messages: [user], tools, stream: true, stream_options: { include_usage: true } },
    { signal },
  );

async function collect(): Promise<{
  text: string;
  argumentParts: string[];
  finish: unknown;
  usage: unknown;
  deltas: number;
}> {
  const seen = {
    text: '',
    argumentParts: [] as string[],
    finish: undefined as unknown,
    usage: undefined as unknown,
    deltas: 0,
  };
  for await (const chunk of await stream()) {
    const choice = chunk.choices[0];
    seen.deltas += choice?.delta.content ? 1 : 0;
    seen.text += choice?.delta.content ?? '';
    for (const call of choice?.delta.tool_calls ?? [])
      if (call.function?.arguments) seen.argumentParts.push(call.function.arguments);
    seen.finish ??= choice?.finish_reason ?? undefined;
    seen.usage ??= chunk.usage ?? undefined;
  }
  return seen;
}

describe('answers', () => {
  it('answers plainly with text and usage', async () => {
    await start([answer('hello', { usage: { promptTokens: 7, completionTokens: 2, cachedTokens: 4 } })]);
    const completion = await client.chat.completions.create({ model: 'm', messages: [user] });
    expect(completion.choices[0]).toMatchObject({
      message: { role: 'assistant', content: 'hello' },
      finish_reason: 'stop',
    });
    expect(completion.usage).toMatchObject({ total_tokens: 9, prompt_tokens_details: { cached_tokens: 4 } });
  });

  it.each([
    ['whole', 1],
    ['characters', 5],
    [2, 3],
  ] as const)('streams text cut as %s in %i deltas, then the finish reason, then usage', async (chunks, deltas) => {
    await start([answer('a🐈bcd', { chunks })]);
    expect(await collect()).toMatchObject({ text: 'a🐈bcd', deltas, finish: 'stop', usage: { total_tokens: 110 } });
  });

  it('streams parallel calls whose arguments the client puts together', async () => {
    const calls = [
      { name: 'read_file', arguments: { path: 'a' } },
      { name: 'read_file', arguments: { path: 'b' } },
    ];
    await start([{ ...callTools(...calls), chunks: 3 }]);
    const whole = await client.chat.completions.stream({ model: 'm', messages: [user], tools }).finalChatCompletion();
    expect(whole.choices[0]?.finish_reason).toBe('tool_calls');
    expect(whole.choices[0]?.message.content).toBeNull();
    const received = whole.choices[0]?.message.tool_calls ?? [];
    expect(received.map((call) => call.type === 'function' && call.function.arguments)).toEqual([
      '{"path":"a"}',
      '{"path":"b"}',
    ]);
    expect(new Set(received.map((call) => call.id)).size).toBe(2);
  });

  it('sends malformed arguments as they are', async () => {
    await start([{ ...callTools({ name: 'read_file', arguments: '{"path":' }), chunks: 4 }]);
    expect(await collect()).toMatchObject({ argumentParts: ['{"pa', 'th":'], finish: 'tool_calls' });
  });

  it('sends no usage when the script says null or the client did not ask', async () => {
    await start([answer('x', { usage: null }), answer('y')]);
    expect((await collect()).usage).toBeUndefined();
    const plain = await client.chat.completions.create({ model: 'm', messages: [user], stream: true });
    for await (const chunk of plain) expect(chunk.usage ?? null).toBeNull();
  });

  it('maps statuses, errors and headers to what the client expects of the real API', async () => {
    await start([{ status: 429, error: 'slow down', headers: { 'retry-after': '7' } }, { status: 503 }]);
    const refused = await client.chat.completions
      .create({ model: 'm', messages: [user] })
      .catch((error: unknown) => error);
    expect(refused).toBeInstanceOf(RateLimitError);
    expect(refused).toMatchObject({ code: 'rate_limit_exceeded', message: '429 slow down' });
    expect((refused as RateLimitError).headers.get('retry-after')).toBe('7');
    await expect(client.chat.completions.create({ model: 'm', messages: [user] })).rejects.toMatchObject({
      status: 503,
      type: 'server_error',
    });
  });
});

describe('faults', () => {
  it('cuts the stream in the middle, after delivering what came before', async () => {
    await start([answer('abcdef', { chunks: 'characters', cutAfterChunks: 4 })]);
    let text = '';
    const reading = (async () => {
      for await (const chunk of await stream()) text += chunk.choices[0]?.delta.content ?? '';
    })();
    await expect(reading).rejects.toThrow('terminated');
    expect(text).toBe('abc');
    expect(server.requests[0]?.aborted).toBe(false);
  });

  it.each<[string, Answer]>([
    ['before the first byte', { hang: true }],
    ['in the middle of a stream', answer('abc', { chunks: 'characters', hangAfterChunks: 2 })],
  ])('hangs %s until the client gives up, and sees that it did', async (_, hanging) => {
    await start([hanging]);
    const abort = new AbortController();
    const reading = (async () => {
      for await (const chunk of await stream(abort.signal)) if (chunk.choices[0]?.delta.content) abort.abort();
    })();
    await server.waitForRequests(1);
    if (hanging.hang) abort.abort();
    await reading.catch((error: unknown) => expect(error).toBeInstanceOf(APIUserAbortError));
    await server.requests[0]?.done;
    expect(server.requests[0]?.aborted).toBe(true);
  });

  it('ends a hanging request when it closes', async () => {
    await start([{ hang: true }]);
    const waiting = expect(client.chat.completions.create({ model: 'm', messages: [user] })).rejects.toBeInstanceOf(
      APIConnectionError,
    );
    await server.waitForRequests(1);
    await server.close();
    await waiting;
    expect(server.requests[0]?.aborted).toBe(false);
  });
});

describe('scripts', () => {
  it('chooses by model name and falls back to the common script', async () => {
    await start({ script: () => answer('common'), scripts: { special: () => answer('own') } });
    const ask = async (model: string) =>
      (await client.chat.completions.create({ model, messages: [user] })).choices[0]?.message.content;
    expect([await ask('special'), await ask('other'), await ask('special')]).toEqual(['own', 'common', 'own']);
    expect(server.requests.map((request) => [request.n, request.model])).toEqual([
      [1, 'special'],
      [2, 'other'],
      [3, 'special'],
    ]);
  });

  it('lets a script decide on the results since the newest user message', async () => {
    await start(
      byConversation(({ step, results }) =>
        step === 0
          ? callTools({ name: 'read_file', arguments: { path: 'x' } })
          : answer(`got ${results[0]?.name}: ${results[0]?.content}`),
      ),
    );
    const first = (await client.chat.completions.create({ model: 'm', messages: [user], tools })).choices[0]?.message;
    if (!first?.tool_calls?.[0]) throw new Error('no call');
    const result = { role: 'tool', tool_call_id: first.tool_calls[0].id, content: 'text of x' } as const;
    const second = await client.chat.completions.create({ model: 'm', messages: [user, first, result], tools });
    expect(second.choices[0]?.message.content).toBe('got read_file: text of x');
  });

  it('fails the request at once when a sequence is used up or a script throws', async () => {
    await start(sequence([answer('only')]));
    await client.chat.completions.create({ model: 'm', messages: [user] });
    await expect(client.chat.completions.create({ model: 'm', messages: [user] })).rejects.toMatchObject({
      status: 400,
      code: 'script_failed',
    });
    expect(server.requests[1]?.refused).toContain('asked for one more');
  });

  it('knows only the models and the key it was given', async () => {
    await start({ models: ['one'], apiKey: 'test' });
    expect((await client.models.list()).data.map((model) => model.id)).toEqual(['one']);
    await expect(client.chat.completions.create({ model: 'two', messages: [user] })).rejects.toBeInstanceOf(
      NotFoundError,
    );
    await expect(client.withOptions({ apiKey: 'wrong' }).models.list()).rejects.toMatchObject({ status: 401 });
  });
});

describe('strictness', () => {
  const call = (id: string) => ({ id, type: 'function', function: { name: 'read_file', arguments: '{}' } });
  const calls = (...ids: string[]) => ({ role: 'assistant', content: null, tool_calls: ids.map(call) });
  const result = (id: string) => ({ role: 'tool', tool_call_id: id, content: 'r' });
  const body = (...messages: object[]) => ({ model: 'm', messages });
  const withTool = (parameters: unknown, name = 'f') => ({
    ...body(user),
    tools: [{ type: 'function', function: { name, parameters } }],
  });

  const refused: [string, object, string][] = [
    [
      'a tool message without a call',
      body(user, result('a')),
      "must be a response to a preceeding message with 'tool_calls'",
    ],
    ['a tool message for another call', body(user, calls('a'), result('b')), "'tool_call_id' of 'b' not found"],
    [
      'a second result of one call',
      body(user, calls('a'), result('a'), result('a')),
      "Duplicate value for 'tool_call_id'",
    ],
    ['a result of an earlier step', body(user, calls('a'), result('a'), calls('b'), result('a')), "'a' not found"],
    ['a call left open at the end', body(user, calls('a', 'b'), result('b')), 'did not have response messages: a'],
    [
      'a call left open before a user message',
      body(user, calls('a'), user, result('a')),
      'did not have response messages: a',
    ],
    [
      'a system message between call and result',
      body(user, calls('a'), { role: 'system', content: 's' }, result('a')),
      'did not have response',
    ],
    ['an unknown role', body({ role: 'robot', content: 'x' }), "Invalid value: 'robot'. Supported values are"],
    ['a message without role', body({ content: 'x' }), "Missing required parameter: 'messages[0].role'"],
    ['an unknown field of a message', body({ ...user, seq: 1 }), "Unknown parameter: 'messages[0].seq'"],
    [
      'an assistant message of nothing',
      body(user, { role: 'assistant', content: null }),
      'expected a string, got null',
    ],
    [
      'an empty list of calls',
      body(user, { role: 'assistant', content: 'x', tool_calls: [] }),
      'messages[1].tool_calls',
    ],
    [
      'arguments that are no string',
      body(user, { role: 'assistant', tool_calls: [{ ...call('a'), function: { name: 'f', arguments: {} } }] }),
      'arguments',
    ],
    ['a missing model', { messages: [user] }, 'you must provide a model parameter'],
    ['no messages', { model: 'm' }, "Missing required parameter: 'messages'"],
    ['an empty list of messages', body(), "Invalid 'messages': empty array"],
    ['an unknown parameter', { ...body(user), sessionId: 's' }, 'Unrecognized request argument supplied: sessionId'],
    ['an empty list of tools', { ...body(user), tools: [] }, "Invalid 'tools': empty array"],
    ['a tool choice without tools', { ...body(user), tool_choice: 'auto' }, "only allowed when 'tools' are specified"],
    [
      'stream options without a stream',
      { ...body(user), stream_options: { include_usage: true } },
      "only allowed when 'stream' is enabled",
    ],
    ['a tool name with a dot', withTool({ type: 'object' }, 'a.b'), 'does not match pattern'],
    ['a tool schema that is no object', withTool({ type: 'string' }), `got 'type: "string"'`],
    ['a tool schema without type', withTool({}), `got 'type: "None"'`],
    [
      'an array without items',
      withTool({ type: 'object', properties: { a: { type: 'array' } } }),
      'array schema missing items',
    ],
    [
      'a type unknown to JSON Schema',
      withTool({ type: 'object', properties: { a: { type: 'text' } } }),
      'is not valid under any of the given schemas',
    ],
  ];

  it.each(refused)('refuses %s', async (_, request, message) => {
    await start({});
    const error: unknown = await client.post('/chat/completions', { body: request }).catch((caught: unknown) => caught);
    expect(error).toBeInstanceOf(BadRequestError);
    expect(error).toMatchObject({ status: 400, type: 'invalid_request_error' });
    expect((error as BadRequestError).message).toContain(message);
    expect(server.requests[0]).toMatchObject({
      n: 0,
      body: request,
      refused: expect.stringContaining(message) as string,
    });
  });

  it('refuses a body that is no JSON', async () => {
    await start({});
    const response = await fetch(`${server.baseUrl}/chat/completions`, { method: 'POST', body: '{' });
    expect(response.status).toBe(400);
    expect(await response.json()).toMatchObject({ error: { type: 'invalid_request_error', param: null, code: null } });
  });

  it('accepts results in any order, system messages in between steps, and text parts', async () => {
    await start({});
    const request = body(
      { role: 'system', content: 's' },
      {
        role: 'user',
        content: [
          { type: 'text', text: 'a' },
          { type: 'image_url', image_url: { url: 'data:image/png;base64,AA==' } },
        ],
      },
      calls('a', 'b'),
      result('b'),
      result('a'),
      { role: 'system', content: 'two left' },
      user,
    );
    await client.post('/chat/completions', { body: request });
    expect(server.requests[0]?.refused).toBeUndefined();
  });
});
