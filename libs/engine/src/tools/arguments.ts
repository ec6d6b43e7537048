import type { ToolDescriptor } from '@margay/contracts';
import { parseModelJson } from './parse-json';
import { findFaults } from './validate';

export type PreparedArguments = { ok: true; args: Record<string, unknown> } | { ok: false; error: string };

const FREE_TEXT_FIELDS = ['query', 'question', 'input', 'text', 'q'];

/** Arguments as the tool gets them, from what the model wrote; or why it can't get any. */
export function prepareArguments(descriptor: ToolDescriptor, argumentsText: string): PreparedArguments {
  const parsed = parse(argumentsText);
  if (!parsed.ok) return parsed;
  const shaped = descriptor.kind === 'mcp' ? shapeForMcp(descriptor, parsed.value) : parsed.value;
  if (!isObject(shaped))
    return {
      ok: false,
      error: `the arguments of '${descriptor.tool_id}' must be a JSON object${expected(descriptor)}`,
    };
  const faults = findFaults(descriptor.schema, shaped);
  if (faults !== undefined)
    return { ok: false, error: `invalid arguments for '${descriptor.tool_id}': ${faults}${expected(descriptor)}` };
  return { ok: true, args: shaped };
}

function parse(text: string): { ok: true; value: unknown } | { ok: false; error: string } {
  if (text.trim() === '') return { ok: true, value: {} };
  try {
    const value = parseModelJson(text);
    if (value === null) return { ok: true, value: {} };
    return { ok: true, value: typeof value === 'string' ? unquote(value) : value };
  } catch (error) {
    return { ok: false, error: `the arguments are not valid JSON (${(error as Error).message}); send them again` };
  }
}

/** Some models send the arguments as JSON within a JSON string. */
function unquote(text: string): unknown {
  try {
    const value = parseModelJson(text);
    return isObject(value) ? value : text;
  } catch {
    return text; // plain text
  }
}

/** MCP servers are strangers: a lone text or a single misnamed argument goes where it can only have been meant for. */
function shapeForMcp(descriptor: ToolDescriptor, value: unknown): unknown {
  const { names, required, properties } = fieldsOf(descriptor);
  if (typeof value === 'string') {
    const field = names.length === 1 ? names[0] : FREE_TEXT_FIELDS.find((name) => names.includes(name));
    return field === undefined ? value : { [field]: value };
  }
  if (!isObject(value)) return value;
  const given = Object.keys(value);
  const [only, meant] = [given[0], required[0]];
  if (given.length !== 1 || required.length !== 1 || only === undefined || meant === undefined) return value;
  if (names.includes(only)) return value;
  return { [meant]: fit(value[only], properties[meant]) };
}

/** A list where one is asked for, and its only element where none is. */
function fit(value: unknown, schema: unknown): unknown {
  const isList = isObject(schema) && schema['type'] === 'array';
  if (isList) return Array.isArray(value) ? value : [value];
  return Array.isArray(value) && value.length === 1 ? (value[0] as unknown) : value;
}

function fieldsOf({ schema }: ToolDescriptor): {
  names: string[];
  required: string[];
  properties: Record<string, unknown>;
} {
  const properties = isObject(schema['properties']) ? schema['properties'] : {};
  const required = Array.isArray(schema['required']) ? schema['required'].map(String) : [];
  return { names: Object.keys(properties), required, properties };
}

function expected(descriptor: ToolDescriptor): string {
  const { names, required } = fieldsOf(descriptor);
  if (names.length === 0) return '';
  return ` (fields: ${names.map((name) => (required.includes(name) ? `${name} (required)` : name)).join(', ')})`;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return value !== null && typeof value === 'object' && !Array.isArray(value);
}
