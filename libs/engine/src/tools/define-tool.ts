import { ToolDescriptor, type EffectClass } from '@margay/contracts';
import { InvalidArgumentError } from '@margay/errors';
import { z } from 'zod';

export interface ToolContext {
  /** Aborted when the call must end: cancelled, timed out, or interrupted. */
  signal: AbortSignal;
  callId: string;
  /** Stays the same on every repetition of the call. */
  idempotencyKey: string;
  sessionId: string;
  agentId: string;
}

/** A JSON Schema of an object. */
export type JsonSchema = Record<string, unknown>;

interface ToolFields {
  /** Letters, digits, `_` and `-`, at most 64: what the model calls it. */
  id: string;
  name?: string;
  description: string;
  operation: 'get' | 'set';
  /** Whether a call may repeat after a crash: `pure` may, `keyed` may with its key, `unkeyed` (the default) may not. */
  effect?: EffectClass;
  concurrencySafe?: boolean;
  readOnly?: boolean;
  interruptBehavior?: 'block' | 'cancel';
  /** UTF-16 units; 0 = no cap. Default 32,000. */
  maxResultChars?: number;
  truncate?: { head: number; tail: number };
  /** Seconds. Default 120. */
  timeout?: number;
  /** Argument holding a longer time-out in seconds. */
  timeoutArgument?: string;
  /** When and how to use it, for the prompt. */
  guidance?: string;
  /** The result of a call that a crash interrupted, if the tool can tell; undefined = it can't. */
  findResult?: (callId: string, context: ToolContext) => unknown;
}

/** Text, any JSON value, or text with images. A throw is a failed result. */
export type ToolResult = unknown;

export interface ToolDefinition<Input> extends ToolFields {
  input: z.ZodType<Input>;
  execute: (input: Input, context: ToolContext) => ToolResult | Promise<ToolResult>;
}

export interface JsonToolDefinition extends ToolFields {
  input: JsonSchema;
  execute: (input: Record<string, unknown>, context: ToolContext) => ToolResult | Promise<ToolResult>;
}

/** A tool that runs in this process. */
export interface DefinedTool {
  readonly descriptor: ToolDescriptor;
  execute(args: Record<string, unknown>, context: ToolContext): Promise<ToolResult>;
  findResult(callId: string, context: ToolContext): Promise<ToolResult>;
}

const ID = /^[A-Za-z0-9_-]{1,64}$/;

/** A tool of your own. `input` is a zod schema, then `execute` gets what it infers, or a JSON Schema. */
export function defineTool<Input>(definition: ToolDefinition<Input>): DefinedTool;
export function defineTool(definition: JsonToolDefinition): DefinedTool;
export function defineTool<Input>(definition: ToolDefinition<Input> | JsonToolDefinition): DefinedTool {
  if (!ID.test(definition.id))
    throw new InvalidArgumentError('invalid_tool', `tool id '${definition.id}' must match ${ID.source}`);
  const { findResult } = definition;
  return {
    descriptor: describe(definition, schemaOf(definition.input)),
    execute: async (args, context) => executeWith(definition, args, context),
    findResult: async (callId, context) => findResult?.(callId, context),
  };
}

function isZod<Input>(definition: ToolDefinition<Input> | JsonToolDefinition): definition is ToolDefinition<Input> {
  return definition.input instanceof z.ZodType;
}

function executeWith<Input>(
  definition: ToolDefinition<Input> | JsonToolDefinition,
  args: Record<string, unknown>,
  context: ToolContext,
): ToolResult {
  if (isZod(definition)) return definition.execute(definition.input.parse(args), context);
  return definition.execute(args, context);
}

function schemaOf(input: z.ZodType | JsonSchema): JsonSchema {
  if (!(input instanceof z.ZodType)) return input;
  const { $schema: _, ...schema } = z.toJSONSchema(input, { io: 'input' });
  return schema;
}

function describe(fields: ToolFields, schema: JsonSchema): ToolDescriptor {
  return ToolDescriptor.parse({
    tool_id: fields.id,
    name: fields.name ?? fields.id,
    description: fields.description,
    scope: 'library',
    schema,
    operation: fields.operation,
    effect: fields.effect ?? 'unkeyed',
    concurrency_safe: fields.concurrencySafe,
    read_only: fields.readOnly ?? fields.effect === 'pure',
    interrupt_behavior: fields.interruptBehavior,
    max_result_chars: fields.maxResultChars,
    truncate: fields.truncate,
    timeout: fields.timeout,
    timeout_argument: fields.timeoutArgument,
    guidance: fields.guidance,
  });
}
