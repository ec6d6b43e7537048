import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type OpenAI from 'openai';
import type { FakeWorkspace } from './workspace.testing.ts';

type Message = OpenAI.ChatCompletionMessageParam;

export const ALL_TOOLS = ['aider_list_dir_tool', 'read_file', 'aider_shell_tool', 'aider_edit_block_tool'];
export const SIGNATURE = /\n\n_This answer comes from Margay’s demonstration model, not from a real one\._$/;

/** The real server as a child process. */
export async function startDemoModel(
  ...options: string[]
): Promise<{ child: ChildProcess; baseURL: string; line: string }> {
  const child = spawn(process.execPath, [join(__dirname, 'server.mjs'), '--port', '0', ...options], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const [line] = (await once(createInterface(child.stdout), 'line')) as [string];
  return { child, line, baseURL: line.slice(line.indexOf('http')) };
}

export async function stop(child: ChildProcess): Promise<number | null> {
  if (child.exitCode !== null || child.signalCode !== null) return child.exitCode;
  const exited = once(child, 'exit') as Promise<[number | null]>;
  child.kill('SIGTERM');
  return (await exited)[0];
}

export const bind = (names: readonly string[]): OpenAI.ChatCompletionTool[] =>
  names.map((name) => ({ type: 'function', function: { name, parameters: { type: 'object', properties: {} } } }));

/** An agent loop as small as it gets, over streamed answers. */
export class DemoSession {
  readonly messages: Message[] = [{ role: 'system', content: 'You are an agent.' }];
  readonly usages: OpenAI.CompletionUsage[] = [];
  /** Text that stood beside tool calls. */
  readonly announced: string[] = [];

  private readonly client: OpenAI;
  private readonly workspace: FakeWorkspace;
  private readonly tools: readonly string[];

  constructor(client: OpenAI, workspace: FakeWorkspace, tools: readonly string[] = ALL_TOOLS) {
    this.client = client;
    this.workspace = workspace;
    this.tools = tools;
  }

  /** Runs to the final answer; `between` may add messages after each step's results. */
  async ask(text: string, between: (step: number) => Message[] = () => []): Promise<string> {
    this.messages.push({ role: 'user', content: text });
    for (let step = 1; step <= 20; step += 1) {
      const message = await this.complete();
      this.messages.push(message);
      if (!message.tool_calls) return message.content ?? '';
      this.announced.push(message.content ?? '');
      for (const call of message.tool_calls) if (call.type === 'function') this.messages.push(this.execute(call));
      this.messages.push(...between(step));
    }
    throw new Error('the demonstration model did not come to an end');
  }

  async complete(tools = this.tools): Promise<OpenAI.ChatCompletionMessage> {
    const stream = this.client.chat.completions.stream({
      model: 'margay-demo',
      messages: this.messages,
      stream_options: { include_usage: true },
      ...(tools.length > 0 && { tools: bind(tools) }),
    });
    const completion = await stream.finalChatCompletion();
    if (completion.usage) this.usages.push(completion.usage);
    const { content, tool_calls } = completion.choices[0]!.message;
    return { role: 'assistant', content, ...(tool_calls?.length && { tool_calls }) } as OpenAI.ChatCompletionMessage;
  }

  private execute(call: OpenAI.ChatCompletionMessageFunctionToolCall): Message {
    const content = this.workspace.run(
      call.function.name,
      JSON.parse(call.function.arguments) as Record<string, unknown>,
    );
    return { role: 'tool', tool_call_id: call.id, content };
  }
}
