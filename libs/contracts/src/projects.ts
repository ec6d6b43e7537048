import { z } from 'zod';

/** A project whose files Margay keeps, as the public API shows it. */
export const ManagedProject = z.object({
  /** 32 hex digits. */
  project_id: z.string(),
  name: z.string(),
  description: z.string(),
  /** As sandboxes see it. */
  path: z.string(),
  path_source: z.literal('auto'),
  folder_created: z.boolean(),
  created_at: z.string(),
  updated_at: z.string(),
  parent_project_id: z.string().nullable(),
  branch: z.string().nullable(),
  is_worktree: z.boolean(),
  /** For `/api/workspaces`. */
  workspace_id: z.string().optional(),
  sandbox_class: z.string().optional().describe('of sessions that name none; absent: the class of the tenant'),
});
export type ManagedProject = z.infer<typeof ManagedProject>;

/** A working tree of a project beside its own, as the public API shows it. */
export const Worktree = z.object({
  project_id: z.string().nullable().describe('names it as a project; null for one that was made by hand'),
  name: z.string(),
  branch: z.string(),
  path: z.string().describe('as sandboxes of its project see it; in those of its own sessions it is the workspace'),
  managed: z.boolean(),
  is_worktree: z.literal(true),
  parent_project_id: z.string(),
  parent_path: z.string(),
  clean: z.boolean().describe('nothing would be lost with it'),
  head: z.string().describe('the commit that is checked out'),
});
export type Worktree = z.infer<typeof Worktree>;

/** What a session is, as `GET S/{id}/spec` shows it. */
export const SessionSpec = z.object({
  origin: z.string(),
  surface: z.string().nullable(),
  purpose_bound: z.boolean(),
  project: z.string().nullable(),
  slug: z.string().nullable(),
  cwd: z.string().nullable(),
  model: z.string(),
  fallback_models: z.array(z.string()),
  allowed_tools: z.array(z.string()).nullable().describe('null = all'),
  strict_tool_scope: z.boolean(),
  capabilities: z.array(z.string()),
  skill_instructions_present: z.boolean(),
  session_step_budget: z.number().int().nullable(),
  mode: z.enum(['plan', 'act']),
  sandbox_class: z.string().describe('of its next run'),
});
export type SessionSpec = z.infer<typeof SessionSpec>;
