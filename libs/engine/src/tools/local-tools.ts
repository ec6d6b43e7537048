import type { ToolDescriptor } from '@margay/contracts';
import { z } from 'zod';
import { epochOfCall } from '../loop/call-ids';
import { messageOf } from '../loop/plain-text';
import {
  Tools,
  type ModelImage,
  type Said,
  type ToolInvocation,
  type ToolOutcome,
  type WrongIncarnation,
} from '../ports';
import type { DefinedTool, ToolContext } from './define-tool';

export interface LocalToolsOptions {
  sessionId: string;
  /** Epoch of the run that calls: an unkeyed call of an earlier one may have run already. */
  epoch: number;
}

type ExecuteOptions = Parameters<Tools['execute']>[1];

/** Tools of this process and other tool ports, as one port. Earlier ones win where ids collide. */
export class LocalTools extends Tools {
  private readonly own = new Map<string, DefinedTool>();
  private readonly ports: Tools[] = [];
  private readonly portByTool = new Map<string, Tools>();

  constructor(
    tools: readonly (DefinedTool | Tools)[],
    private readonly options: LocalToolsOptions,
  ) {
    super();
    for (const tool of tools) {
      if (tool instanceof Tools) this.ports.push(tool);
      else if (!this.own.has(tool.descriptor.tool_id)) this.own.set(tool.descriptor.tool_id, tool);
    }
  }

  async list(): Promise<ToolDescriptor[]> {
    const descriptors = [...this.own.values()].map(({ descriptor }) => descriptor);
    for (const port of this.ports) {
      for (const descriptor of await port.list()) {
        if (this.own.has(descriptor.tool_id) || this.portByTool.has(descriptor.tool_id)) continue;
        this.portByTool.set(descriptor.tool_id, port);
        descriptors.push(descriptor);
      }
    }
    return descriptors;
  }

  execute(invocation: ToolInvocation, options: ExecuteOptions): Promise<ToolOutcome | WrongIncarnation> {
    const tool = this.own.get(invocation.toolId);
    if (tool) return this.run(tool, invocation, options);
    const port = this.portByTool.get(invocation.toolId);
    if (port) return port.execute(invocation, options);
    return Promise.resolve({ status: 'error', result: null, error: 'Tool not available' });
  }

  /** Each port in turn puts in what it knows of. */
  override async expandReferences({ text, attachments }: Said, signal: AbortSignal): Promise<string> {
    let expanded = text;
    for (const port of this.ports) expanded = await port.expandReferences({ text: expanded, attachments }, signal);
    return expanded;
  }

  private async run(tool: DefinedTool, invocation: ToolInvocation, { signal }: ExecuteOptions): Promise<ToolOutcome> {
    const context: ToolContext = {
      signal,
      callId: invocation.callId,
      idempotencyKey: invocation.idempotencyKey,
      sessionId: this.options.sessionId,
      agentId: invocation.agentId,
    };
    try {
      const isInterrupted = invocation.effect === 'unkeyed' && epochOfCall(invocation.callId) < this.options.epoch;
      if (!isInterrupted) return succeeded(await tool.execute(invocation.args, context));
      const found = await tool.findResult(invocation.callId, context);
      return found === undefined ? { status: 'unknown', result: null } : succeeded(found);
    } catch (error) {
      if (signal.aborted) return { status: 'cancelled', result: null, error: messageOf(signal.reason) };
      return { status: 'error', result: null, error: inWords(error) };
    }
  }
}

function succeeded(result: unknown): ToolOutcome {
  if (!hasImages(result)) return { status: 'ok', result: result ?? '' };
  return { status: 'ok', result: result.text, images: result.images };
}

function hasImages(result: unknown): result is { text: string; images: ModelImage[] } {
  if (typeof result !== 'object' || result === null) return false;
  const { text, images } = result as { text?: unknown; images?: unknown };
  return typeof text === 'string' && Array.isArray(images);
}

function inWords(error: unknown): string {
  return error instanceof z.ZodError ? z.prettifyError(error) : messageOf(error);
}
