import { createHash } from 'node:crypto';
import path from 'node:path';
import type { sandboxdPb } from '@margay/contracts';
import { openPlain } from './plain-file';

type Known = Pick<
  sandboxdPb.ListFilesResponse,
  'instructions' | 'skills' | 'agents' | 'policies' | 'monitors' | 'mcpHash' | 'mcpServers'
>;

const EACH_MAX = 500;
const MCP_MAX_BYTES = 256 * 1024;
const SERVERS_MAX = 100;

const FORMS = {
  instructions: /(^|\/)(CLAUDE|CLAUDE\.local|AGENTS)\.md$/,
  skills: /(^|\/)\.claude\/skills\/.+\.md$/,
  agents: /(^|\/)\.claude\/agents\/.+\.md$/,
  policies: /(^|\/)\.(mewbo|margay)\/policy\/.+\.md$/,
  monitors: /(^|\/)\.(mewbo|margay)\/monitors?\/.+\.md$/,
} as const;

/** What of a workspace's files agents are told and given. */
export async function knownFiles(root: string, files: readonly string[]): Promise<Known> {
  const of = (kind: keyof typeof FORMS) => files.filter((file) => FORMS[kind].test(file)).slice(0, EACH_MAX);
  const mcp = files.includes('.mcp.json') ? await mcpOf(path.join(root, '.mcp.json')) : { mcpHash: '', mcpServers: [] };
  return {
    instructions: of('instructions'),
    skills: of('skills'),
    agents: of('agents'),
    policies: of('policies'),
    monitors: of('monitors'),
    ...mcp,
  };
}

async function mcpOf(file: string): Promise<Pick<Known, 'mcpHash' | 'mcpServers'>> {
  const content = await beginningOf(file);
  if (content === undefined) return { mcpHash: '', mcpServers: [] };
  return { mcpHash: createHash('sha256').update(content).digest('hex'), mcpServers: serversIn(content.toString()) };
}

async function beginningOf(file: string): Promise<Buffer | undefined> {
  const handle = await openPlain(file);
  if (!handle) return undefined;
  try {
    const { bytesRead, buffer } = await handle.read(Buffer.alloc(MCP_MAX_BYTES), 0, MCP_MAX_BYTES, 0);
    return buffer.subarray(0, bytesRead);
  } catch {
    return undefined; // a folder, for one
  } finally {
    await handle.close();
  }
}

function serversIn(text: string): string[] {
  try {
    const { mcpServers } = JSON.parse(text) as { mcpServers?: unknown };
    return typeof mcpServers === 'object' && mcpServers !== null ? Object.keys(mcpServers).slice(0, SERVERS_MAX) : [];
  } catch {
    return []; // who connects to them says what is wrong with it
  }
}
