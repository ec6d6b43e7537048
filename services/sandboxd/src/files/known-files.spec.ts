import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { knownFiles } from './known-files';

let root: string;
beforeEach(() => {
  root = mkdtempSync(path.join(tmpdir(), 'margay-known-'));
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

describe('what agents are told and given', () => {
  it('is found among the files by where it lies', async () => {
    const files = [
      ...[
        '.claude/agents/review.md',
        '.claude/skills/deploy/SKILL.md',
        '.claude/skills/flat.md',
        '.margay/policy/a.md',
      ],
      ...[
        '.mewbo/policy/b.md',
        '.mewbo/monitors/c.md',
        'AGENTS.md',
        'CLAUDE.md',
        'docs/CLAUDE.md',
        'docs/NOTCLAUDE.md',
      ],
    ];
    expect(await knownFiles(root, files)).toEqual({
      instructions: ['AGENTS.md', 'CLAUDE.md', 'docs/CLAUDE.md'],
      skills: ['.claude/skills/deploy/SKILL.md', '.claude/skills/flat.md'],
      agents: ['.claude/agents/review.md'],
      policies: ['.margay/policy/a.md', '.mewbo/policy/b.md'],
      monitors: ['.mewbo/monitors/c.md'],
      mcpHash: '',
      mcpServers: [],
    });
  });

  it.each([
    ['{"mcpServers":{"search":{"env":{"KEY":"secret"}}}}', ['search']],
    ['{"mcpServers":[]}', []],
    ['not json', []],
  ])('names MCP servers and nothing of their settings: %s', async (content, servers) => {
    writeFileSync(path.join(root, '.mcp.json'), content);
    const known = await knownFiles(root, ['.mcp.json']);
    expect(known).toMatchObject({ mcpHash: expect.stringMatching(/^[0-9a-f]{64}$/), mcpServers: servers });
    expect(JSON.stringify(known)).not.toContain('secret');
  });
});
