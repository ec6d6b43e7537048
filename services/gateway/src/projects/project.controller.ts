import { Controller, Param } from '@nestjs/common';
import { ManagedProject, SandboxClassName } from '@margay/contracts';
import { z } from 'zod';
import type { Caller } from '../auth/admission';
import { Backends } from '../backends';
import { Answer } from '../http/answer';
import { Operation } from '../http/operation';
import { FromBody, FromCaller, FromHeaders, type DriveFacts } from '../http/parameters';
import { RepeatHeaders } from '../session/session.dto';

const text = (name: string) => z.string(`Invalid input: '${name}' must be text`);

const ProjectClass = SandboxClassName.or(z.literal('')).nullish();

const CreateBody = z.object({
  name: text('name').nullish(),
  description: text('description').nullish(),
  path: text('path').nullish().describe('refused: Margay keeps the files itself'),
  sandbox_class: ProjectClass.describe("of sandboxes of its sessions that name none; absent: the tenant's"),
  content: z
    .looseObject(
      { kind: text('content.kind').describe('empty, clone, upload or template') },
      "Invalid input: 'content' must be an object",
    )
    .nullish()
    .describe('what the files begin with, see docs/workspaces.md'),
});
const UpdateBody = z.object({
  name: text('name').nullish(),
  description: text('description').nullish(),
  sandbox_class: ProjectClass.describe("empty: the tenant's again"),
});

const Branches = z.object({
  branches: z.array(z.string()),
  git_repo: z.boolean(),
  current_branch: z.string().nullable().optional(),
  branches_in_use: z.array(z.string()).optional(),
  reason: z.string().optional().describe('why it is no repository: missing_path, not_git'),
  stale: z.boolean().optional(),
});

/** The first look into a workspace may have to start a sandbox. */
const LOOK_TIMEOUT_MS = 20_000;
const OF_PROJECTS = { service: 'session', family: 'reference', errors: 'message' } as const;
const PATH = '/api/v_projects/{project_id}';
const SAMPLE = { path: { project_id: '{project_id}' } };

@Controller()
export class ProjectController {
  constructor(private readonly backends: Backends) {}

  @Operation({
    ...OF_PROJECTS,
    method: 'POST',
    path: '/api/v_projects',
    summary: 'Create a project whose files Margay keeps: empty, cloned, uploaded or from a template',
    scope: 'projects.write',
    headers: RepeatHeaders,
    body: CreateBody,
    responses: { 201: { description: 'the project', schema: ManagedProject } },
    sample: { body: { name: 'Shop', description: 'a web shop' }, status: 201 },
  })
  async create(
    @FromCaller() { call }: Caller,
    @FromBody() { name, description, path, content, sandbox_class: sandboxClass }: z.infer<typeof CreateBody>,
    @FromHeaders() { idempotencyKey }: DriveFacts,
  ): Promise<Answer> {
    const told = { name: name ?? '', description: description ?? '', path: path ?? '' };
    const contentJson = content ? JSON.stringify(content) : '';
    const made = { contentKind: content?.kind ?? '', contentJson, sandboxClass: sandboxClass ?? '' };
    const request = { ...told, ...made, idempotencyKey };
    const { projectJson, replayed } = await this.backends.sessions.createProject(request, call);
    return Answer.json(projectJson, 201).replayed(replayed);
  }

  @Operation({
    ...OF_PROJECTS,
    method: 'GET',
    path: PATH,
    summary: 'A project whose files Margay keeps',
    scope: 'projects.read',
    responses: { 200: { description: 'the project', schema: ManagedProject } },
    sample: { ...SAMPLE, status: 200 },
  })
  async get(@FromCaller() { call }: Caller, @Param('project_id') projectId: string): Promise<Answer> {
    return Answer.json((await this.backends.sessions.getProject({ projectId }, call)).projectJson);
  }

  @Operation({
    ...OF_PROJECTS,
    method: 'GET',
    path: `${PATH}/branches`,
    summary: 'Branches of the repository of any project, by any form of its name',
    scope: 'projects.read',
    responses: { 200: { description: 'the branches, or why there are none', schema: Branches } },
    sample: { ...SAMPLE, status: 200 },
  })
  async branches(@FromCaller() { call }: Caller, @Param('project_id') project: string): Promise<Answer> {
    const found = await this.backends.sessions.listBranches({ project }, { ...call, timeoutMs: LOOK_TIMEOUT_MS });
    const stale = found.stale ? { stale: true } : {};
    if (!found.isGit) return new Answer(200, { branches: [], git_repo: false, reason: found.reason, ...stale });
    const { branches, currentBranch, branchesInUse } = found;
    const used = { current_branch: currentBranch || null, branches_in_use: branchesInUse };
    return new Answer(200, { branches, ...used, git_repo: true, ...stale });
  }

  @Operation({
    ...OF_PROJECTS,
    method: 'PATCH',
    path: PATH,
    summary: 'Rename a project, describe it anew, or give its sessions another class of sandboxes',
    scope: 'projects.write',
    body: UpdateBody,
    responses: { 200: { description: 'the project', schema: ManagedProject } },
    sample: { ...SAMPLE, body: { description: 'the web shop' }, status: 200 },
  })
  async update(
    @FromCaller() { call }: Caller,
    @Param('project_id') projectId: string,
    @FromBody() { name, description, sandbox_class: sandboxClass }: z.infer<typeof UpdateBody>,
  ): Promise<Answer> {
    const changed = { name: name ?? undefined, description: description ?? undefined };
    const request = { projectId, ...changed, sandboxClass: sandboxClass ?? undefined };
    return Answer.json((await this.backends.sessions.updateProject(request, call)).projectJson);
  }

  @Operation({
    ...OF_PROJECTS,
    method: 'DELETE',
    path: PATH,
    summary: 'Delete a project; nobody reaches its files any more',
    scope: 'projects.write',
    responses: { 204: { description: 'it is deleted' } },
    sample: { ...SAMPLE, status: 204 },
  })
  async delete(@FromCaller() { call }: Caller, @Param('project_id') projectId: string): Promise<Answer> {
    await this.backends.sessions.deleteProject({ projectId }, call);
    return new Answer(204, undefined);
  }
}
