import { toolDescriptor } from '@margay/testing';
import { prepareArguments } from './arguments';

const schema = {
  type: 'object',
  properties: { query: { type: 'string' }, limit: { type: 'integer', minimum: 1 } },
  required: ['query'],
  additionalProperties: false,
};
const local = toolDescriptor({ tool_id: 'find', schema });
const mcp = toolDescriptor({ tool_id: 'mcp__docs__find', kind: 'mcp', schema });

const errorOf = (descriptor: typeof local, text: string): string => {
  const prepared = prepareArguments(descriptor, text);
  return prepared.ok ? 'none' : prepared.error;
};

it('takes what fits the schema', () => {
  expect(prepareArguments(local, '{"query":"cat","limit":3}')).toEqual({ ok: true, args: { query: 'cat', limit: 3 } });
});

it.each(['', '  ', 'null', '{}'])('reads %j as no arguments', (text) => {
  expect(prepareArguments(toolDescriptor({ tool_id: 'now' }), text)).toEqual({ ok: true, args: {} });
});

it('opens an object that was sent as a text', () => {
  expect(prepareArguments(local, '"{\\"query\\":\\"cat\\"}"')).toEqual({ ok: true, args: { query: 'cat' } });
});

it('says what is no JSON', () => {
  expect(errorOf(local, '{"query": "ca')).toMatch(/^the arguments are not valid JSON \(.+\); send them again$/);
});

it.each([
  ['list', '['.repeat(50_000) + ']'.repeat(50_000)],
  ['text', JSON.stringify(`{"query":${'['.repeat(2_000)}${']'.repeat(2_000)}}`)],
])('refuses a %s that is nested too deep for whoever reads it', (kind, value) => {
  const text = kind === 'text' ? value : `{"query":${value}}`;
  expect(errorOf(local, text)).toMatch(kind === 'text' ? /must be a JSON object/ : /nested more than 100 levels deep/);
});

it('says what is missing, unknown or wrong, and which fields there are', () => {
  expect(errorOf(local, '{"limit":0,"colour":"red"}')).toBe(
    "invalid arguments for 'find': missing required field 'query'; unknown field 'colour'; limit must be >= 1 (fields: query (required), limit)",
  );
  expect(errorOf(local, '[1]')).toContain('must be a JSON object');
});

describe('for MCP tools only', () => {
  it('puts a lone text into the field it can only be meant for', () => {
    expect(prepareArguments(mcp, '"cat"')).toEqual({ ok: true, args: { query: 'cat' } });
    expect(errorOf(local, '"cat"')).toContain('must be a JSON object');
  });

  it('moves a single misnamed argument', () => {
    expect(prepareArguments(mcp, '{"q":"cat"}')).toEqual({ ok: true, args: { query: 'cat' } });
    expect(prepareArguments(mcp, '{"q":["cat"]}')).toEqual({ ok: true, args: { query: 'cat' } });
    expect(errorOf(local, '{"q":"cat"}')).toContain("unknown field 'q'");
  });

  it('makes a list of a value where one is asked for', () => {
    const list = { type: 'object', properties: { urls: { type: 'array', items: {} } }, required: ['urls'] };
    const tool = toolDescriptor({ tool_id: 'mcp__web__get', kind: 'mcp', schema: list });
    expect(prepareArguments(tool, '{"url":"a"}')).toEqual({ ok: true, args: { urls: ['a'] } });
  });
});

it('checks nothing by a schema that no draft understands', () => {
  const odd = toolDescriptor({ tool_id: 'odd', schema: { type: 'object', properties: { a: { type: 'banana' } } } });
  expect(prepareArguments(odd, '{"a":1}')).toEqual({ ok: true, args: { a: 1 } });
});

it('understands draft 7 and 2020-12', () => {
  const pair = (draft: string, keyword: string) =>
    toolDescriptor({
      tool_id: `pair_${keyword}`,
      schema: {
        $schema: draft,
        type: 'object',
        properties: { at: { type: 'array', [keyword]: [{ type: 'string' }, { type: 'number' }] } },
      },
    });
  const old = pair('http://json-schema.org/draft-07/schema#', 'items');
  const current = pair('https://json-schema.org/draft/2020-12/schema', 'prefixItems');
  for (const tool of [old, current]) {
    expect(prepareArguments(tool, '{"at":["a",1]}')).toMatchObject({ ok: true });
    expect(errorOf(tool, '{"at":[1,1]}')).toContain('at.0 must be string');
  }
});
