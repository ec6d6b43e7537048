import { Controller, Param } from '@nestjs/common';
import { Worktree } from '@margay/contracts';
import { z } from 'zod';
import type { Caller } from '../auth/admission';
import { Backends } from '../backends';
import { Answer } from '../http/answer';
import { Operation } from '../http/operation';
import { FromBody, FromCaller, FromQuery } from '../http/parameters';
import { isTrue } from '../http/query';

const text = (name: string) => z.string(`Invalid input: '${name}' must be text`);

const CreateBody = z.object({
  branch: text('branch').nullish(),
  base: text('base').nullish().describe('where the branch begins that is made; absent: the branch exists'),
});
const DeleteQuery = z.object({
  force: z
    .string()
    .optional()
    .describe('also with changes that are stored nowhere else, or while a run is active there'),
});

const Worktrees = z.object({
  worktrees: z.array(Worktree),
  stale: z.boolean().optional().describe('the list is older than a minute; a new one is under way'),
});
const Absent = z.object({ status: z.literal('already_absent') });

/** Git works in a sandbox, which may have to be started: then the answer is 503, and the next one comes sooner. */
const GIT_TIMEOUT_MS = 45_000;
const LIST_TIMEOUT_MS = 20_000;
const OF_PROJECTS = { service: 'tool-executor', family: 'reference', errors: 'message' } as const;
const PATH = '/api/v_projects/{project_id}/worktrees';
const SAMPLE = { path: { project_id: '{project_id}' } };

@Controller()
export class WorktreeController {
  constructor(private readonly backends: Backends) {}

  @Operation({
    ...OF_PROJECTS,
    method: 'GET',
    path: PATH,
    summary: 'Working trees of a project beside its own, those made by hand included',
    scope: 'projects.read',
    responses: { 200: { description: 'the worktrees', schema: Worktrees } },
    sample: { ...SAMPLE, status: 200 },
  })
  async list(@FromCaller() { call }: Caller, @Param('project_id') project: string): Promise<Answer> {
    const options = { ...call, timeoutMs: LIST_TIMEOUT_MS };
    const { worktreesJson, stale } = await this.backends.sessions.listWorktrees({ project }, options);
    const worktrees = worktreesJson.map((json) => JSON.parse(json) as Worktree);
    return new Answer(200, { worktrees, ...(stale ? { stale } : {}) });
  }

  @Operation({
    ...OF_PROJECTS,
    method: 'POST',
    path: PATH,
    summary: 'Check a branch out beside the others, in a worktree that sessions can work in',
    scope: 'projects.write',
    body: CreateBody,
    responses: { 201: { description: 'the worktree; a repeat for its branch finds it', schema: Worktree } },
    sample: { ...SAMPLE, body: { branch: 'feature', base: 'main' }, status: 201 },
  })
  async create(
    @FromCaller() { call }: Caller,
    @Param('project_id') project: string,
    @FromBody() { branch, base }: z.infer<typeof CreateBody>,
  ): Promise<Answer> {
    const request = { project, branch: branch ?? '', base: base ?? '' };
    const options = { ...call, timeoutMs: GIT_TIMEOUT_MS };
    return Answer.json((await this.backends.sessions.createWorktree(request, options)).worktreeJson, 201);
  }

  @Operation({
    ...OF_PROJECTS,
    method: 'DELETE',
    path: `${PATH}/{worktree_id}`,
    summary: 'Remove a worktree, unless something would be lost with it',
    scope: 'projects.write',
    query: DeleteQuery,
    responses: {
      200: { description: 'there was none', schema: Absent },
      204: { description: 'it is removed' },
    },
    sample: { path: { ...SAMPLE.path, worktree_id: '{worktree_id}' }, status: 200 },
  })
  async delete(
    @FromCaller() { call }: Caller,
    @Param('project_id') project: string,
    @Param('worktree_id') worktreeId: string,
    @FromQuery() { force }: z.infer<typeof DeleteQuery>,
  ): Promise<Answer> {
    const request = { project, worktreeId, force: isTrue(force) };
    const options = { ...call, timeoutMs: GIT_TIMEOUT_MS };
    const { alreadyAbsent } = await this.backends.sessions.deleteWorktree(request, options);
    return alreadyAbsent ? new Answer(200, { status: 'already_absent' }) : new Answer(204, undefined);
  }
}
