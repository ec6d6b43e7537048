import { Controller, Param } from '@nestjs/common';
import { SnapshotView } from '@margay/contracts';
import { z } from 'zod';
import type { Caller } from '../auth/admission';
import { Backends } from '../backends';
import { Answer } from '../http/answer';
import { Operation } from '../http/operation';
import { FromBody, FromCaller } from '../http/parameters';

const OF_SNAPSHOTS = { service: 'tool-executor', family: 'margay', errors: 'envelope' } as const;
const PATH = '/api/workspaces/{workspace_id}';
const SAMPLE = { path: { workspace_id: '{workspace_id}' } };
/** A large workspace takes its time. */
const TIMEOUT_MS = 900_000;

const RestoreBody = z.strictObject({ n: z.number().int().min(1).optional() });
const SnapshotPage = z.object({ snapshots: z.array(SnapshotView) });

/** Archives of workspaces. */
@Controller()
export class SnapshotController {
  constructor(private readonly backends: Backends) {}

  @Operation({
    ...OF_SNAPSHOTS,
    method: 'GET',
    path: `${PATH}/snapshots`,
    summary: 'Archives of a workspace that are kept, newest first',
    scope: 'projects.read',
    responses: { 200: { description: 'the snapshots', schema: SnapshotPage } },
    sample: { ...SAMPLE, status: 200 },
  })
  async list(@FromCaller() { call }: Caller, @Param('workspace_id') workspaceId: string): Promise<Answer> {
    const { snapshotsJson } = await this.backends.snapshots.listSnapshots({ workspaceId }, call);
    return new Answer(200, { snapshots: snapshotsJson.map(parsed) });
  }

  @Operation({
    ...OF_SNAPSHOTS,
    method: 'POST',
    path: `${PATH}/snapshot`,
    summary: 'Archive a workspace as it is now',
    scope: 'projects.write',
    responses: { 200: { description: 'the newest snapshot, an old one if nothing has changed', schema: SnapshotView } },
    sample: { ...SAMPLE, status: 200 },
  })
  async take(@FromCaller() { call }: Caller, @Param('workspace_id') workspaceId: string): Promise<Answer> {
    return shown(await this.backends.snapshots.takeSnapshot({ workspaceId }, { ...call, timeoutMs: TIMEOUT_MS }));
  }

  @Operation({
    ...OF_SNAPSHOTS,
    method: 'POST',
    path: `${PATH}/restore`,
    summary: 'Put the files of a snapshot, the newest unless named, in the place of what the workspace holds',
    scope: 'projects.write',
    body: RestoreBody,
    responses: { 200: { description: 'the snapshot that was restored', schema: SnapshotView } },
    sample: { ...SAMPLE, body: {}, status: 200 },
  })
  async restore(
    @FromCaller() { call }: Caller,
    @Param('workspace_id') workspaceId: string,
    @FromBody() { n }: z.infer<typeof RestoreBody>,
  ): Promise<Answer> {
    return shown(await this.backends.snapshots.restoreSnapshot({ workspaceId, n }, { ...call, timeoutMs: TIMEOUT_MS }));
  }

  @Operation({
    ...OF_SNAPSHOTS,
    method: 'POST',
    path: `${PATH}/relocate`,
    summary: 'Leave the volume of a workspace where it is: its newest snapshot goes to a new one with the next sandbox',
    scope: 'projects.write',
    responses: { 200: { description: 'the snapshot that will be there', schema: SnapshotView } },
    sample: { ...SAMPLE, status: 200 },
  })
  async relocate(@FromCaller() { call }: Caller, @Param('workspace_id') workspaceId: string): Promise<Answer> {
    return shown(await this.backends.snapshots.relocate({ workspaceId }, call));
  }
}

function shown({ snapshotJson }: { snapshotJson: string }): Answer {
  return new Answer(200, parsed(snapshotJson));
}

function parsed(json: string): SnapshotView {
  return JSON.parse(json) as SnapshotView;
}
