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
});
export type ManagedProject = z.infer<typeof ManagedProject>;
