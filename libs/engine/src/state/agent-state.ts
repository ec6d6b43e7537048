import { sha256Hex, type LogRecord, type OpenRecord, type RunOptions } from '@margay/log';
import type { ModelMessage, ModelUsage } from '../ports';
import { withAttachments } from '../context/attachments';
import { Guards } from './guards';
import { ReadCache } from './read-cache';
import {
  isEngineRecord,
  isLogRecord,
  type AssistantRecord,
  type EngineRecord,
  type NoteRecord,
  type PromptRecord,
  type ToolRecord,
} from './records';
import { Turn } from './turn';

const OUTPUTS_KEPT = 5;

export const NO_USAGE: ModelUsage = {
  inputTokens: 0,
  outputTokens: 0,
  cacheReadTokens: 0,
  cacheCreationTokens: 0,
  reasoningTokens: 0,
};

/** What one run knows of itself; it starts anew with each run of the session. */
class RunFacts {
  /** The agent's prompt is stored, and with it the start of the first model call. */
  isStarted = false;
  /** Answers of the model so far. */
  answers = 0;
  /** Answers that called tools, and all of whose calls are answered. */
  steps = 0;
  usage: ModelUsage = NO_USAGE;
  /** Model that answered last. */
  model: string | undefined;
  /** Parts of an answer that was cut at the output limit. */
  cutParts: string[] = [];
  /** Lowest step budget threshold that was warned of. */
  warnedAt = Infinity;
  isWrappingUp = false;
  /** Last successful tool outputs. */
  outputs: string[] = [];
  readonly guards = new Guards();
  readonly reads = new ReadCache();

  constructor(
    readonly runId: string,
    readonly agentId: string,
    readonly options: RunOptions,
  ) {}
}

/** The root agent's id is derived from its run's, so every owner of the run finds the same. */
export function rootAgentId(runId: string): string {
  return sha256Hex(runId).slice(0, 12);
}

/**
 * The conversation and everything the loop decides on: a fold over the session's records. The loop feeds it the records
 * it writes, so a run that is taken over goes on from exactly the same state.
 */
export class AgentState {
  /** Append-only. */
  readonly messages: ModelMessage[] = [];
  private readonly prompts = new Map<string, string>();
  private readonly inbox = new Map<number, Extract<LogRecord, { kind: 'inbox' }>>();
  private current: RunFacts | undefined;
  private turn: Turn | undefined;
  private promptText = '';
  /** What was said while calls were unanswered: it follows their results. */
  private held: ModelMessage[] = [];
  /** Where the conversation stood when each run began. */
  private readonly starts = new Map<string, number>();
  /** What opened the run, as it was said. */
  opening: { text: string; attachments: readonly unknown[] } = { text: '', attachments: [] };
  /** Calls that have asked a person. */
  private readonly asked = new Set<string>();

  apply(record: LogRecord | OpenRecord | EngineRecord): void {
    if (isEngineRecord(record)) this.applyOwn(record);
    else if (isLogRecord(record)) this.applyLog(record);
  }

  get run(): RunFacts {
    if (!this.current) throw new Error('the log holds no run');
    return this.current;
  }

  /** Text of the agent's prompt as stored; empty before that. */
  get prompt(): string {
    return this.promptText;
  }

  /** The stored hash makes its text known to later runs. */
  hasPrompt(sha256: string): boolean {
    return this.prompts.has(sha256);
  }

  /** The call's question is stored. */
  hasAsked(callId: string): boolean {
    return this.asked.has(callId);
  }

  /** The answer whose calls are under way. */
  get openTurn(): Turn | undefined {
    return this.turn;
  }

  private applyLog(record: LogRecord): void {
    switch (record.kind) {
      case 'run':
        this.closeTurn();
        this.inbox.clear();
        this.promptText = '';
        this.starts.set(record.runId, this.messages.length);
        this.current = new RunFacts(record.runId, rootAgentId(record.runId), record.options);
        return;
      case 'user':
        this.opening = { text: record.text, attachments: record.attachments };
        this.say({ role: 'user', text: withAttachments(record.text, record.attachments) });
        return;
      case 'inbox':
        this.inbox.set(record.n, record);
        return;
      case 'consumed':
        this.consume(record.to);
        return;
      case 'question':
        this.asked.add(record.callId);
        return;
      case 'cut':
        this.closeTurn();
        this.messages.splice(this.starts.get(record.runId) ?? 0);
        return;
      case 'sandbox':
        this.turn?.incarnations.add(record.incarnation);
        return;
      case 'end':
        this.closeTurn();
        this.say({ role: 'assistant', text: record.text, toolCalls: [] });
    }
  }

  private applyOwn(record: EngineRecord): void {
    if (record.kind === 'prompt') this.addPrompt(record);
    else if (record.agentId !== this.current?.agentId) return;
    else if (record.kind === 'assistant') this.addAnswer(record);
    else if (record.kind === 'tool') this.addResult(record);
    else if (record.kind === 'expansion') this.expand(record.text);
    else this.addNote(record);
  }

  /** Before the model saw it. */
  private expand(text: string): void {
    const at = this.starts.get(this.run.runId);
    if (at === undefined || this.messages[at]?.role !== 'user') return;
    this.messages[at] = { role: 'user', text: withAttachments(text, this.opening.attachments) };
  }

  private addPrompt(record: PromptRecord): void {
    if (record.text !== undefined) this.prompts.set(record.sha256, record.text);
    if (record.agentId !== this.current?.agentId) return;
    this.current.isStarted = true;
    this.promptText = this.prompts.get(record.sha256) ?? '';
  }

  private addAnswer(record: AssistantRecord): void {
    this.closeTurn();
    const { run } = this;
    run.answers = record.step;
    run.usage = addUsage(run.usage, record.usage);
    run.model = record.model;
    run.cutParts = record.isCut ? [...run.cutParts, record.text] : [];
    const toolCalls = record.toolCalls.map(({ callId, name, argumentsText }) => ({ callId, name, argumentsText }));
    this.messages.push({ role: 'assistant', text: record.text, toolCalls });
    if (toolCalls.length > 0) this.turn = new Turn(record);
  }

  private addResult(record: ToolRecord): void {
    const { turn, run } = this;
    if (!turn?.add(record)) return;
    if (!record.isRefused) run.guards.onResult(record.isError);
    if (!record.isError) run.outputs = [...run.outputs, record.text].slice(-OUTPUTS_KEPT);
    if (record.changedFiles) run.reads.evict(record.changedFiles);
    if (record.read) {
      const { key, path, version } = record.read;
      run.reads.add(key, { path, version, callId: record.callId });
    }
    if (!turn.isAnswered) return;
    run.guards.onAnsweredTurn(turn);
    run.steps += 1;
    this.closeTurn();
  }

  private addNote(record: NoteRecord): void {
    const { run } = this;
    this.say({ role: 'system', text: record.text });
    if (record.cause === 'wrap_up') run.isWrappingUp = true;
    if (record.threshold !== undefined) run.warnedAt = record.threshold;
  }

  private consume(to: number): void {
    for (const [n, item] of [...this.inbox].sort(([a], [b]) => a - b)) {
      if (n > to) break;
      this.inbox.delete(n);
      // The result of its call says it.
      if (item.item === 'answer') continue;
      this.say({ role: 'user', text: item.item === 'interrupt' ? INTERRUPT_MARKER : item.text });
      this.current?.guards.reset();
    }
  }

  private say(message: ModelMessage): void {
    (this.turn ? this.held : this.messages).push(message);
  }

  private closeTurn(): void {
    if (this.turn) this.messages.push(...this.turn.toolMessages(), ...this.held);
    this.held = [];
    this.turn = undefined;
  }
}

const INTERRUPT_MARKER = '[Interrupted by user: the step under way was stopped. Wait for what follows, or adapt.]';

export function addUsage(total: ModelUsage, more: ModelUsage): ModelUsage {
  return {
    inputTokens: total.inputTokens + more.inputTokens,
    outputTokens: total.outputTokens + more.outputTokens,
    cacheReadTokens: total.cacheReadTokens + more.cacheReadTokens,
    cacheCreationTokens: total.cacheCreationTokens + more.cacheCreationTokens,
    reasoningTokens: total.reasoningTokens + more.reasoningTokens,
  };
}
