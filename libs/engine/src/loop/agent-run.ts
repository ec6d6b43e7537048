import type { Head } from '@margay/log';
import { childOf, shared } from '../abort';
import { promptPrefix, promptTail, type PromptFacts } from '../context/prompt';
import type { EnginePorts, ModelMessage, ModelRequest, ModelTool } from '../ports';
import { AgentState } from '../state/agent-state';
import { toOpenRecord, type EngineRecord } from '../state/records';
import { askUserQuestion } from '../tools/ask-user-question';
import { ToolRegistry } from '../tools/registry';
import { EventFactory } from './event-factory';
import { DEFAULT_LIMITS, type RunLimits } from './limits';
import { Sandbox } from './sandbox';
import { Writer, type Carried } from './writer';

export interface RunAgentOptions {
  limits?: Partial<RunLimits>;
  /** Unchanging facts for the prompt, such as `Working directory: /workspace`. */
  environment?: readonly string[];
  /** Texts of the operator and the project, most general first. */
  instructions?: readonly string[];
}

const ROOT_DEPTH = 0;

/** One agent at work: its state, its ports, and what is shared by the parts of the loop. */
export class AgentRun {
  readonly depth = ROOT_DEPTH;
  readonly events: EventFactory;
  readonly writer: Writer;
  readonly sandbox: Sandbox;
  /** Aborted when the run must not go on; its reason is the cause. */
  readonly stop: AbortSignal;
  /** Inbox items up to here are in the conversation. */
  consumedTo: number;
  /** Raised by each interrupt. */
  interrupts = 0;
  private readonly halt: AbortController & { release: () => void };
  private readonly interruptListeners = new Set<() => void>();
  private readonly stopListening: () => void;
  private prefix: ModelMessage | undefined;

  private constructor(
    readonly ports: EnginePorts,
    readonly head: Head,
    readonly state: AgentState,
    readonly tools: ToolRegistry,
    readonly limits: RunLimits,
    private readonly options: RunAgentOptions,
  ) {
    this.halt = childOf(ports.inbox.stop);
    this.stop = shared(this.halt.signal);
    this.writer = new Writer(ports.journal, head.c, (error) => this.halt.abort(error));
    this.sandbox = new Sandbox(this.writer, head.sandbox?.incarnation, (incarnation) =>
      state.apply({ kind: 'sandbox', incarnation }),
    );
    this.consumedTo = head.run?.consumedTo ?? head.inboxEnd;
    this.events = new EventFactory(state.run.agentId, this.depth);
    this.stopListening = ports.inbox.onItem(({ kind }) => {
      if (kind === 'interrupt') this.interrupt();
    });
  }

  /** Opens the journal and rebuilds the state that the log's records make up. */
  static async open(ports: EnginePorts, options: RunAgentOptions): Promise<AgentRun> {
    const [{ head, records }, descriptors] = await Promise.all([ports.journal.open(), ports.tools.list()]);
    const state = new AgentState();
    for (const { record } of records) state.apply(record);
    const tools = new ToolRegistry([...descriptors, askUserQuestion], state.run.options);
    return new AgentRun(ports, head, state, tools, { ...DEFAULT_LIMITS, ...options.limits }, options);
  }

  close(): void {
    this.stopListening();
    this.halt.release();
  }

  /**
   * Nobody has driven the run since it waited: until then all results were stored, so calls that have none were never
   * sent anywhere.
   */
  get isWoken(): boolean {
    return this.head.run?.isWoken === true;
  }

  get agentId(): string {
    return this.state.run.agentId;
  }

  /** Models to ask, the one that answered last first. */
  get models(): string[] {
    const { model, fallbackModels } = this.state.run.options;
    const chain = [model, ...fallbackModels];
    const current = this.state.run.model;
    return current === undefined || !chain.includes(current) ? chain : [...new Set([current, ...chain])];
  }

  /** Undefined = unlimited. */
  get stepsLeft(): number | undefined {
    const { stepBudget } = this.state.run.options;
    return stepBudget > 0 ? Math.max(0, stepBudget - this.state.run.steps) : undefined;
  }

  onInterrupt(listener: () => void): () => void {
    this.interruptListeners.add(listener);
    return () => this.interruptListeners.delete(listener);
  }

  /** Makes a record part of the conversation and of the commit to come. */
  record(carried: Carried, record: EngineRecord): void {
    this.state.apply(record);
    carried.records.push(toOpenRecord(record));
  }

  /** The agent's prompt, stored where the log does not hold it yet. */
  recordPrompt(carried: Carried): void {
    const { mode } = this.state.run.options;
    const { environment = [], instructions = [] } = this.options;
    const facts: PromptFacts = { tools: this.tools, mode, environment, instructions };
    const { text, sha256 } = promptPrefix(facts);
    const isKnown = this.state.hasPrompt(sha256);
    this.record(carried, { kind: 'prompt', agentId: this.agentId, sha256, ...(isKnown ? {} : { text }) });
  }

  /** Prefix, conversation and tail; the conversation is copied, so that it may grow meanwhile. */
  request(model: string, tools: readonly ModelTool[]): ModelRequest {
    this.prefix ??= { role: 'system', text: this.state.prompt };
    const tail = promptTail({ nowMs: this.ports.clock.nowMs(), stepsLeft: this.stepsLeft });
    return { model, messages: [this.prefix, ...this.state.messages, tail], tools: [...tools] };
  }

  private interrupt(): void {
    this.interrupts += 1;
    for (const listener of this.interruptListeners) listener();
  }
}
