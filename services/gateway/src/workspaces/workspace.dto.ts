import { ContentSource, WorkspaceView } from '@margay/contracts';
import { z } from 'zod';
import { checkInput } from '../http/input';

const LIMIT_MAX = 200;
const FILENAME_MAX_CHARS = 255;

export const PageQuery = z.object({
  limit: z
    .string()
    .regex(/^\d+$/)
    .optional()
    .transform((text) => (text === undefined ? 0 : Math.min(Number(text), LIMIT_MAX)))
    .describe(`1 to ${LIMIT_MAX}, 50 by default`),
  cursor: z.string().optional().describe('`next_cursor` of the page before'),
});

export const WorkspacePage = z.object({ workspaces: z.array(WorkspaceView), next_cursor: z.string().nullable() });

export const UpdateBody = z.strictObject({
  legal_hold: z.boolean().optional().describe('keeps it from being deleted; needs an administrator'),
});

export const ContentBody = z.strictObject({
  kind: z.enum(['clone', 'template', 'empty']),
  url: z.string().optional().describe('clone: an https address'),
  ref: z.string().optional().describe('clone: a branch, tag or commit'),
  depth: z.number().int().optional().describe('clone: so many commits only'),
  submodules: z.boolean().optional().describe('clone'),
  lfs: z.boolean().optional().describe('clone: large files too'),
  name: z.string().optional().describe('template: one that the operator offers'),
  snapshot: z.string().optional().describe('template: the id of a snapshot of a project'),
  replace: z.boolean().optional().describe('all that is there goes first'),
});

export const UploadQuery = z.object({
  filename: z
    .string()
    .max(FILENAME_MAX_CHARS)
    .optional()
    .describe('of a file; its ending tells an archive (.tar .tar.gz .tgz .tar.zst .zip), without it the first bytes'),
  replace: z.enum(['true', 'false', '1', '0']).optional().describe('of a file: all that is there goes first'),
});

/** @throws InvalidArgumentError `validation` */
export function sourceIn({ replace: _, ...asked }: z.infer<typeof ContentBody>): ContentSource {
  return checkInput(ContentSource, asked, 'margay');
}
