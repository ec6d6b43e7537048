import { ToolDescriptor } from '@margay/contracts';
import { z } from 'zod';

export const CatalogQuery = z.object({ project: z.string().optional() });

/** What the public may know of a tool. */
export const PublicTool = ToolDescriptor.pick({
  tool_id: true,
  name: true,
  kind: true,
  enabled: true,
  description: true,
  disabled_reason: true,
  server: true,
  scope: true,
  requires_capability: true,
});
export const ToolList = z.object({ tools: z.array(PublicTool) });

const Project = z.looseObject({
  name: z.string(),
  path: z.string(),
  description: z.string(),
  available: z.boolean(),
  source: z.string(),
  project_id: z.string().optional(),
  is_worktree: z.boolean().optional(),
  parent_project_id: z.string().nullable().optional(),
  branch: z.string().nullable().optional(),
  repo: z
    .object({ host: z.string(), owner: z.string(), name: z.string() })
    .optional()
    .describe('where its repository is shared with others'),
  aliases: z.array(z.string()).optional().describe('forms of its repository that mean this project and no other'),
});
export const ProjectList = z.object({ projects: z.array(Project) });

export const ModelList = z.object({
  models: z.array(z.string()),
  default: z.string(),
  capabilities: z.record(z.string(), z.looseObject({ supports_vision: z.boolean().optional() })),
});
