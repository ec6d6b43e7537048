import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';
import OpenAI from 'openai';

let child: ChildProcess;
let baseURL: string;
let client: OpenAI;

beforeEach(async () => {
  const started = spawn(process.execPath, [join(__dirname, 'server.mjs'), '--trace'], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  child = started;
  const [line] = (await once(createInterface(started.stdout), 'line')) as [string];
  expect(line).toMatch(/^bench model listening on http:\/\/127\.0\.0\.1:\d+\/v1$/);
  baseURL = line.slice(line.indexOf('http'));
  client = new OpenAI({ baseURL, apiKey: 'none', maxRetries: 0 });
});

afterEach(async () => {
  const exited = once(child, 'exit');
  child.kill('SIGTERM');
  expect(await exited).toEqual([0, null]);
});

type Message = OpenAI.ChatCompletionMessageParam;
const user: Message = { role: 'user', content: 'go: "role":"user" "tool_call_id"' };
const called = (...ids: string[]): Message => ({
  role: 'assistant',
  tool_calls: ids.map((id) => ({
    id,
    type: 'function',
    function: { name: 'read_file', arguments: '{"role":"user"}' },
  })),
});
const result = (id: string): Message => ({ role: 'tool', tool_call_id: id, content: '{"role":"user"}' });
const tools: OpenAI.ChatCompletionTool[] = [
  { type: 'function', function: { name: 'read_file', parameters: { type: 'object' } } },
];

const ask = async (model: string, ...messages: Message[]): Promise<OpenAI.ChatCompletionMessage> => {
  const stream = client.chat.completions.stream({ model, messages, tools, stream_options: { include_usage: true } });
  const streamed = await stream.finalChatCompletion();
  const plain = await client.chat.completions.create({ model, messages, tools });
  expect(streamed.usage).toEqual(plain.usage);
  const shapeOf = (completion: OpenAI.ChatCompletion) =>
    completion.choices.map(({ finish_reason, message: { content, tool_calls } }) => [
      finish_reason,
      content,
      tool_calls?.map((call) => call.type === 'function' && [call.function.name, call.function.arguments]),
    ]);
  expect(shapeOf(streamed)).toEqual(shapeOf(plain));
  return plain.choices[0]!.message;
};
const argumentsOf = (message: OpenAI.ChatCompletionMessage): unknown[] =>
  (message.tool_calls ?? []).map((call) => call.type === 'function' && JSON.parse(call.function.arguments));
const control = async (path: string, body?: object): Promise<{ status: number; body: Record<string, unknown> }> => {
  const response = await fetch(new URL(path, baseURL), body && { method: 'POST', body: JSON.stringify(body) });
  return { status: response.status, body: (await response.json()) as Record<string, unknown> };
};

describe('the script', () => {
  it('calls as often and as much in parallel as the model name says, with arguments that differ', async () => {
    expect(argumentsOf(await ask('r2p2', user))).toEqual([
      { path: 'README.md', limit: 2000 },
      { path: 'README.md', limit: 2001 },
    ]);
    const second = await ask('bench/r2p2', user, called('a', 'b'), result('a'), result('b'));
    expect(argumentsOf(second)).toEqual([
      { path: 'README.md', limit: 2002 },
      { path: 'README.md', limit: 2003 },
    ]);
    const last = await ask('r1p2n3', user, called('a', 'b'), result('a'), result('b'));
    expect(last).toMatchObject({ content: 'word0 word1 word2' });
  });

  it('counts results since the run began, not those of earlier runs', async () => {
    const earlier: Message[] = [user, called('a'), result('a'), { role: 'assistant', content: 'done' }];
    expect((await ask('r1p1', ...earlier, user)).tool_calls).toHaveLength(1);
    expect((await ask('r1p1', ...earlier, user, called('b'), result('b'))).tool_calls).toBeUndefined();
  });

  it('does not begin again at a message that comes in while the run is at work', async () => {
    const steered = [user, called('a'), result('a'), { role: 'system', content: 'x' } as const, user];
    expect((await ask('r1p1', ...steered)).tool_calls).toBeUndefined();
    expect(argumentsOf(await ask('r2p1', ...steered))).toEqual([{ path: 'README.md', limit: 2001 }]);
  });

  it('counts the whole request on demand', async () => {
    await control('/config', { scope: 'all' });
    const messages: Message[] = [user, called('a'), result('a'), { role: 'assistant', content: 'done' }, user];
    expect((await ask('r1p1', ...messages)).tool_calls).toBeUndefined();
  });

  it('answers a request without tools at once', async () => {
    const completion = await client.chat.completions.create({ model: 'r9p9', messages: [user] });
    expect(completion.choices[0]?.message.content).toBe('Bench title');
    expect((await control('/stats')).body).toMatchObject({ requests: 1, asides: 1 });
  });
});

describe('its controls', () => {
  it('takes tool, arguments and pacing from the configuration, and refuses what it does not know', async () => {
    await control('/config', { tool: 'echo', arguments: '{"text":"m{i}"}', latencyMs: 5, deltaMs: 1 });
    const first = await client.chat.completions.create({ model: 'r1p1', messages: [user], tools });
    expect(first.choices[0]?.message.tool_calls).toMatchObject([
      { function: { name: 'echo', arguments: '{"text":"m0"}' } },
    ]);
    const stamps: number[] = [];
    for await (const chunk of await client.chat.completions.create({
      model: 'r0p1n3',
      messages: [user],
      tools,
      stream: true,
    }))
      if (chunk.choices[0]?.delta.content) stamps.push(Number(chunk.choices[0].delta.content.split('@')[1]));
    expect(stamps).toHaveLength(3);
    expect(stamps).toEqual(stamps.toSorted((a, b) => a - b));
    for (const faulty of [{ parallel: 0 }, { rounds: '5' }, { scope: 'x' }, { nothing: 1 }])
      expect((await control('/config', faulty)).status).toBe(400);
    expect((await control('/config')).body).toMatchObject({ parallel: 1, rounds: 200, tool: 'echo' });
  });

  it('tells the gaps between answers and next requests, and forgets them on reset', async () => {
    for (let n = 0; n < 3; n += 1) await client.chat.completions.create({ model: 'r1p1', messages: [user], tools });
    const { requests, gaps_us } = (await control('/stats')).body as { requests: number; gaps_us: number[] };
    expect(requests).toBe(3);
    expect(gaps_us).toHaveLength(2);
    expect(Math.min(...gaps_us)).toBeGreaterThan(0);
    await control('/reset', {});
    expect((await control('/stats')).body).toMatchObject({ requests: 0, gaps_us: [] });
  });
});

describe('the floor', () => {
  it.each([[['--plain']], [[]]])('plays the whole run and reports CPU and wall time per step (%j)', async (options) => {
    const floor = join(__dirname, '..', 'floor.mjs');
    const { stdout } = await promisify(execFile)(process.execPath, [
      floor,
      baseURL,
      '--rounds',
      '5',
      '--parallel',
      '3',
      '--repeat',
      '1',
      ...options,
    ]);
    const measured = JSON.parse(stdout) as { steps: number; cpuMsPerStep: number; wallMsPerStep: number };
    expect(measured).toMatchObject({ rounds: 5, parallel: 3, steps: 6, stream: options.length === 0 });
    expect(measured.cpuMsPerStep).toBeGreaterThan(0);
    expect(measured.wallMsPerStep).toBeGreaterThan(0);
    expect((await control('/stats')).body).toMatchObject({ requests: 12 });
  });
});
