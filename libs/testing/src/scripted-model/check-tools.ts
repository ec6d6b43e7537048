import { invalid } from './api-error';
import { chatTool, type ChatTool } from './chat-request';
import { fromIssue, isObject } from './faults';

const NAME = /^[a-zA-Z0-9_-]+$/;

/**
 * Checks `tools` and the parameters that need them.
 * @throws {ApiError} 400 at the first violation.
 */
export function checkTools(body: Record<string, unknown>): ChatTool[] {
  const tools = body['tools'];
  if (tools === undefined || tools === null) {
    for (const name of ['tool_choice', 'parallel_tool_calls'])
      if (body[name] !== undefined && body[name] !== 'none')
        throw invalid(
          `Invalid value for '${name}': '${name}' is only allowed when 'tools' are specified.`,
          name,
          'invalid_value',
        );
    return [];
  }
  if (!Array.isArray(tools))
    throw invalid("Invalid type for 'tools': expected an array of objects.", 'tools', 'invalid_type');
  if (tools.length === 0)
    throw invalid(
      "Invalid 'tools': empty array. Expected an array with minimum length 1, but got an empty array instead.",
      'tools',
      'empty_array',
    );
  return tools.map((tool: unknown, index) => checkTool(tool, index));
}

function checkTool(tool: unknown, index: number): ChatTool {
  const at = `tools[${index}]`;
  const checked = chatTool.safeParse(tool);
  if (!checked.success) throw fromIssue(checked.error.issues[0], at);
  const { name, parameters } = checked.data.function;
  if (!NAME.test(name))
    throw invalid(
      `Invalid '${at}.function.name': string does not match pattern. Expected a string that matches the pattern '${NAME.source}'.`,
      `${at}.function.name`,
      'invalid_value',
    );
  const fault = parameters === undefined ? undefined : findSchemaFault(parameters, '()', true);
  if (fault !== undefined)
    throw invalid(
      `Invalid schema for function '${name}': ${fault}`,
      `${at}.function.parameters`,
      'invalid_function_parameters',
    );
  return checked.data;
}

const TYPES = new Set(['object', 'array', 'string', 'number', 'integer', 'boolean', 'null']);

/** The first thing in a JSON Schema that the real API refuses, in its words. */
function findSchemaFault(schema: unknown, context: string, isRoot = false): string | undefined {
  if (schema === true || schema === false) return undefined;
  if (!isObject(schema)) return `In context=${context}, schema must be an object or a boolean.`;
  const type = schema['type'];
  if (isRoot && type !== 'object')
    return `schema must be a JSON Schema of 'type: "object"', got 'type: "${typeof type === 'string' ? type : 'None'}"'.`;
  const types: unknown[] = type === undefined ? [] : [type].flat();
  if (types.some((name) => typeof name !== 'string' || !TYPES.has(name)))
    return `In context=${context}, ${JSON.stringify(type)} is not valid under any of the given schemas.`;
  if (types.includes('array') && schema['items'] === undefined && schema['prefixItems'] === undefined)
    return `In context=${context}, array schema missing items.`;
  const properties = schema['properties'] ?? {};
  if (!isObject(properties)) return `In context=${context}, 'properties' must be an object.`;
  for (const [name, property] of Object.entries(properties)) {
    const fault = findSchemaFault(property, `('properties', '${name}')`);
    if (fault !== undefined) return fault;
  }
  return schema['items'] === undefined ? undefined : findSchemaFault(schema['items'], `('items')`);
}
