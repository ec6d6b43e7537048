import { Readable } from 'node:stream';
import { Controller, Headers, Param } from '@nestjs/common';
import { WorkspaceView, type workspacesPb } from '@margay/contracts';
import type { z } from 'zod';
import type { Caller } from '../auth/admission';
import { Backends } from '../backends';
import { Answer } from '../http/answer';
import { Operation } from '../http/operation';
import { FromBody, FromCaller, FromQuery } from '../http/parameters';
import { etagOf, RevisionHeaders, wantedEtag } from '../http/revision';
import { FromStreamOrBody, STREAMED_TYPES } from '../http/streamed-body';
import { ContentBody, PageQuery, sourceIn, UpdateBody, UploadQuery, WorkspacePage } from './workspace.dto';

const OF_WORKSPACES = { service: 'tool-executor', family: 'margay', errors: 'envelope' } as const;
const PATH = '/api/workspaces/{workspace_id}';
const SAMPLE = { path: { workspace_id: '{workspace_id}' } };
/** One message between services holds it. */
const PIECE_BYTES = 1024 * 1024;
/** From the first byte to the last. */
const UPLOAD_TIMEOUT_MS = 900_000;

/** Where files lie, what they begin with, and when they go. */
@Controller()
export class WorkspaceController {
  constructor(private readonly backends: Backends) {}

  @Operation({
    ...OF_WORKSPACES,
    method: 'GET',
    path: '/api/workspaces',
    summary: 'Workspaces of projects, and of your sessions; of all sessions for administrators',
    scope: 'projects.read',
    query: PageQuery,
    responses: { 200: { description: 'a page, newest first', schema: WorkspacePage } },
    sample: { query: { limit: '10' }, status: 200 },
  })
  async list(
    @FromCaller() { call }: Caller,
    @FromQuery() { limit, cursor }: z.infer<typeof PageQuery>,
  ): Promise<Answer> {
    const page = await this.backends.workspaces.list({ limit, cursor: cursor ?? '' }, call);
    const next = page.nextCursor === '' ? null : page.nextCursor;
    return new Answer(200, { workspaces: page.workspacesJson.map(parsed), next_cursor: next });
  }

  @Operation({
    ...OF_WORKSPACES,
    method: 'GET',
    path: PATH,
    summary: 'A workspace: what its files began with, when it was used last, when it goes',
    scope: 'projects.read',
    responses: { 200: { description: 'the workspace', schema: WorkspaceView } },
    sample: { ...SAMPLE, status: 200 },
  })
  async get(@FromCaller() { call }: Caller, @Param('workspace_id') workspaceId: string): Promise<Answer> {
    return shown(await this.backends.workspaces.get({ workspaceId }, call));
  }

  @Operation({
    ...OF_WORKSPACES,
    method: 'PATCH',
    path: PATH,
    summary: 'Put a workspace under legal hold, or take that off',
    scope: 'projects.write',
    headers: RevisionHeaders,
    body: UpdateBody,
    responses: { 200: { description: 'the workspace', schema: WorkspaceView } },
    sample: { ...SAMPLE, body: { legal_hold: true }, status: 200 },
  })
  async update(
    @FromCaller() { call }: Caller,
    @Param('workspace_id') workspaceId: string,
    @FromBody() { legal_hold: legalHold }: z.infer<typeof UpdateBody>,
    @Headers('if-match') ifMatch?: string,
  ): Promise<Answer> {
    const request = { workspaceId, legalHold, ifMatch: wantedEtag(ifMatch) };
    return shown(await this.backends.workspaces.update(request, call));
  }

  @Operation({
    ...OF_WORKSPACES,
    method: 'DELETE',
    path: PATH,
    summary: 'Delete a workspace with all its files; it is gone once it answers 404',
    scope: 'projects.write',
    headers: RevisionHeaders,
    responses: { 202: { description: 'it is being deleted', schema: WorkspaceView } },
    sample: { ...SAMPLE, status: 202 },
  })
  async delete(
    @FromCaller() { call }: Caller,
    @Param('workspace_id') workspaceId: string,
    @Headers('if-match') ifMatch?: string,
  ): Promise<Answer> {
    const request = { workspaceId, ifMatch: wantedEtag(ifMatch) };
    return shown(await this.backends.workspaces.delete(request, call), 202);
  }

  @Operation({
    ...OF_WORKSPACES,
    method: 'POST',
    path: `${PATH}/content`,
    summary: 'Say what a workspace is to begin with, anew; or send it, as an archive or a file',
    scope: 'projects.write',
    query: UploadQuery,
    body: ContentBody,
    streams: STREAMED_TYPES,
    responses: { 202: { description: 'its next sandbox brings it', schema: WorkspaceView } },
    sample: { ...SAMPLE, body: { kind: 'clone', url: 'https://git.example.com/team/shop', depth: 1 }, status: 202 },
  })
  async content(
    @FromCaller() { call }: Caller,
    @Param('workspace_id') workspaceId: string,
    @FromQuery() { filename = '', replace }: z.infer<typeof UploadQuery>,
    @FromStreamOrBody() body: z.infer<typeof ContentBody> | Readable,
  ): Promise<Answer> {
    if (body instanceof Readable) {
      const facts = { workspaceId, filename, replace: replace === 'true' || replace === '1' };
      return shown(await this.upload(facts, body, call), 202);
    }
    const request = { workspaceId, sourceJson: JSON.stringify(sourceIn(body)), replace: body.replace ?? false };
    return shown(await this.backends.workspaces.setContent(request, call), 202);
  }

  private async upload(facts: UploadFacts, body: Readable, call: Caller['call']): Promise<Told> {
    try {
      return await this.backends.workspaces.upload(messagesOf(facts, body), { ...call, timeoutMs: UPLOAD_TIMEOUT_MS });
    } finally {
      // Clients read no answer before they have sent everything.
      body.resume();
    }
  }
}

type Told = { workspaceJson: string };
type UploadFacts = Omit<workspacesPb.UploadRequest, 'content'>;

async function* messagesOf(facts: UploadFacts, body: Readable): AsyncIterable<workspacesPb.UploadRequest> {
  yield { ...facts, content: Buffer.alloc(0) };
  const others = { workspaceId: '', filename: '', replace: false };
  for await (const chunk of body as AsyncIterable<Buffer>)
    for (let at = 0; at < chunk.length; at += PIECE_BYTES)
      yield { ...others, content: chunk.subarray(at, at + PIECE_BYTES) };
}

function shown({ workspaceJson }: Told, status = 200): Answer {
  const workspace = parsed(workspaceJson);
  return new Answer(status, workspace, etagOf(workspace));
}

function parsed(json: string): WorkspaceView {
  return JSON.parse(json) as WorkspaceView;
}
