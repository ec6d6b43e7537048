import type { ToolDescriptor } from '@margay/contracts';
import type { RunOptions } from '@margay/log';
import type { ModelTool } from '../ports';
import { namesTool } from './aliases';

/** The tools of one agent: what the model sees, and how its names are found again. */
export class ToolRegistry {
  /** Sorted by id, so that equal sets give equal requests. */
  readonly descriptors: readonly ToolDescriptor[];
  readonly modelTools: readonly ModelTool[];
  private readonly byId: ReadonlyMap<string, ToolDescriptor>;

  constructor(available: readonly ToolDescriptor[], options: RunOptions) {
    this.descriptors = available
      .filter((descriptor) => isBound(descriptor, options))
      .sort((a, b) => (a.tool_id < b.tool_id ? -1 : 1));
    this.byId = new Map(this.descriptors.map((descriptor) => [descriptor.tool_id, descriptor]));
    this.modelTools = this.descriptors.map(({ tool_id, description, schema }) => ({
      name: tool_id,
      description,
      parameters: completeSchema(schema) as Record<string, unknown>,
    }));
  }

  /** By id, else by another of its names. */
  find(name: string): ToolDescriptor | undefined {
    return this.byId.get(name) ?? this.descriptors.find(({ tool_id }) => namesTool(name, tool_id));
  }
}

function isBound(descriptor: ToolDescriptor, options: RunOptions): boolean {
  const { enabled, kind, tool_id, requires_capability, read_only } = descriptor;
  if (!enabled) return false;
  if (requires_capability !== null && !options.capabilities.includes(requires_capability)) return false;
  if (options.mode === 'plan' && kind === 'local' && !read_only) return false;
  if (kind !== 'mcp' || options.mcpTools === null) return true;
  return options.mcpTools.some((name) => namesTool(name, tool_id));
}

/** Providers refuse arrays that don't say what they hold. */
function completeSchema(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(completeSchema);
  if (schema === null || typeof schema !== 'object') return schema;
  const completed = Object.fromEntries(Object.entries(schema).map(([key, value]) => [key, completeSchema(value)]));
  return completed['type'] === 'array' && !('items' in completed) ? { ...completed, items: {} } : completed;
}
