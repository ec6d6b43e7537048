import type { ToolDescriptor } from '@margay/contracts';
import { Tools, type ToolInvocation, type ToolOutcome, type WrongIncarnation } from '@margay/engine';

type Run = (args: Record<string, unknown>, signal: AbortSignal) => ToolOutcome | Promise<ToolOutcome>;

export interface FakeTool {
  descriptor: ToolDescriptor;
  run: Run;
}

/** What a sandbox remembers: which calls it ran, and what came of them. */
export interface SandboxMemory {
  incarnation: string;
  results: Map<string, ToolOutcome>;
}

/**
 * Tools in a sandbox as protocol §4 has it: a call runs once per incarnation, another incarnation refuses calls that are
 * not pure, and the results outlive the engine that asked.
 */
export class FakeSandbox extends Tools {
  /** Call ids in the order in which they really ran. */
  readonly ran: string[] = [];

  constructor(
    private readonly tools: readonly FakeTool[],
    readonly memory: SandboxMemory,
  ) {
    super();
  }

  list(): Promise<ToolDescriptor[]> {
    return Promise.resolve(this.tools.map(({ descriptor }) => descriptor));
  }

  async execute(
    invocation: ToolInvocation,
    options: { incarnation: string; signal: AbortSignal },
  ): Promise<ToolOutcome | WrongIncarnation> {
    const { incarnation, results } = this.memory;
    if (options.incarnation !== '' && options.incarnation !== incarnation)
      return { status: 'wrong_incarnation', incarnation };
    const stored = results.get(invocation.callId);
    if (stored) return stored;
    const tool = this.tools.find(({ descriptor }) => descriptor.tool_id === invocation.toolId);
    if (!tool) return { status: 'error', result: null, error: 'no such tool' };
    this.ran.push(invocation.callId);
    const outcome = { ...(await tool.run(invocation.args, options.signal)), incarnation };
    results.set(invocation.callId, outcome);
    return outcome;
  }
}
