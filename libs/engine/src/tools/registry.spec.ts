import type { RunOptions } from '@margay/log';
import { toolDescriptor } from '@margay/testing';
import { canonicalIds, expandAliases, namesTool } from './aliases';
import { ToolRegistry } from './registry';

const OPTIONS: RunOptions = {
  model: 'm',
  fallbackModels: [],
  mode: 'act',
  mcpTools: null,
  capabilities: [],
  stepBudget: 0,
  engineVersion: 'test',
};
const bound = (descriptors: Parameters<typeof toolDescriptor>[0][], options: Partial<RunOptions> = {}): string[] =>
  new ToolRegistry(descriptors.map(toolDescriptor), { ...OPTIONS, ...options }).modelTools.map(({ name }) => name);

it('binds tools sorted by id, without disabled ones', () => {
  expect(bound([{ tool_id: 'b' }, { tool_id: 'a' }, { tool_id: 'c', enabled: false }])).toEqual(['a', 'b']);
});

it('binds a tool that needs a capability only where the client has it', () => {
  const tool = { tool_id: 'present_ui', requires_capability: 'generative_ui' };
  expect(bound([tool])).toEqual([]);
  expect(bound([tool], { capabilities: ['generative_ui'] })).toEqual(['present_ui']);
});

it('limits MCP tools by the allow-list, in either spelling, and no others', () => {
  const tools = [
    { tool_id: 'mcp__docs__find', kind: 'mcp' as const },
    { tool_id: 'mcp__docs__drop', kind: 'mcp' as const },
    { tool_id: 'read_file' },
  ];
  expect(bound(tools, { mcpTools: ['mcp_docs_find'] })).toEqual(['mcp__docs__find', 'read_file']);
  expect(bound(tools, { mcpTools: [] })).toEqual(['read_file']);
});

it('withholds local tools that change things in plan mode', () => {
  expect(bound([{ tool_id: 'look', read_only: true }, { tool_id: 'edit' }], { mode: 'plan' })).toEqual(['look']);
});

it('says what the elements of an array are where a schema leaves it open', () => {
  const schema = { type: 'object', properties: { list: { type: 'array' } } };
  const { modelTools } = new ToolRegistry([toolDescriptor({ tool_id: 'a', schema })], OPTIONS);
  expect(modelTools[0]?.parameters).toEqual({ type: 'object', properties: { list: { type: 'array', items: {} } } });
});

it('finds a tool by its other names', () => {
  const registry = new ToolRegistry([toolDescriptor({ tool_id: 'aider_shell_tool' })], OPTIONS);
  expect(registry.find('Bash')?.tool_id).toBe('aider_shell_tool');
  expect(registry.find('bash')).toBeUndefined();
});

it('knows aliases of one and of several tools', () => {
  expect(canonicalIds('Edit')).toEqual(['aider_edit_block_tool', 'file_edit_tool']);
  expect(expandAliases(['Edit', 'Write', 'Read', 'custom'])).toEqual([
    'aider_edit_block_tool',
    'file_edit_tool',
    'read_file',
    'custom',
  ]);
  expect(canonicalIds('toString')).toEqual(['toString']);
  expect(namesTool('mcp_docs_find', 'mcp__docs__find')).toBe(true);
  expect(namesTool('mcp_docs_find', 'mcp__docs__find_all')).toBe(false);
});
