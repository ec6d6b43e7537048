import { randomBytes } from 'node:crypto';
import { ContentSource, type Principal, type SandboxView, type WorkspaceView } from '@margay/contracts';
import { AbortedError, FailedPreconditionError, InvalidArgumentError, NotFoundError } from '@margay/errors';
import type { SandboxInventory, KnownSandbox } from '../driver/sandbox-inventory';
import { utilityWorkspaceOf, workspaceIdOf } from '../driver/workspace-key';
import type { Snapshots } from '../snapshots/snapshots';
import { snapshotNamed } from './content-orders';
import { readCursor, writeCursor } from './page-cursor';
import type { Retention } from './retention';
import type { WorkspaceTemplates } from './templates';
import type { UploadStore } from './upload-store';
import {
  mayKnow,
  refuseHeld,
  requireAdministrator,
  requireOwner,
  seesAll,
  workspaceNotFound,
} from './workspace-access';
import { isUsable, type StoredContent, type StoredUpload, type WorkspaceDocument } from './workspace-document';
import type { WorkspaceRecords } from './workspace-records';
import type { WorkspaceRemoval } from './workspace-removal';
import { presentSandbox, presentWorkspace } from './workspace.presenter';

export interface WorkspacesPorts {
  records: WorkspaceRecords;
  uploads: UploadStore;
  templates: WorkspaceTemplates;
  retention: Retention;
  removal: Pick<WorkspaceRemoval, 'remove'>;
  inventory: SandboxInventory;
  snapshots: Pick<Snapshots, 'list'>;
  release: (tenantId: string, sessionId: string) => Promise<void>;
  /** Of sandboxes that are made without being told. */
  usual: { class: string; storage: string };
}

const PAGE = 50;
const PAGE_MAX = 200;

/** What people and session ask of workspaces and the sandboxes on them. */
export class WorkspacesService {
  constructor(private readonly ports: WorkspacesPorts) {}

  /** The workspace of a new project. The same again changes nothing. @throws InvalidArgumentError `bad_request` */
  async declare(tenantId: string, projectId: string, owner: string, source: unknown): Promise<string> {
    if (!/^[0-9a-f]{32}$/.test(projectId))
      throw new InvalidArgumentError('bad_request', 'The project id is malformed.');
    const content = contentOf(await this.checked(tenantId, source), false);
    const made = { ...this.ports.usual, owner, content } as const;
    return (await this.ports.records.obtain(tenantId, `p/${projectId}`, made))._id;
  }

  /** Its project is gone. */
  async retire(tenantId: string, projectId: string): Promise<void> {
    const { records, retention } = this.ports;
    const _id = workspaceIdOf(tenantId, `p/${projectId}`);
    await records.changeLatest({ _id, tenantId }, (row) =>
      row.retainUntil ? undefined : { set: { retainUntil: retention.retainedUntil(new Date()) } },
    );
  }

  async list(
    principal: Principal,
    request: { limit: number; cursor: string },
  ): Promise<{ workspaces: WorkspaceView[]; nextCursor: string }> {
    const limit = Math.min(request.limit || PAGE, PAGE_MAX);
    const owner = seesAll(principal) ? undefined : principal.principal;
    const after = readCursor(request.cursor);
    const rows = await this.ports.records.list(principal.tenantId, { owner, after, limit: limit + 1 });
    const last = rows.length > limit ? rows[limit - 1] : undefined;
    const workspaces = rows.slice(0, limit).map((row) => this.present(row));
    return { workspaces, nextCursor: last ? writeCursor(last) : '' };
  }

  async get(principal: Principal, id: string): Promise<WorkspaceView> {
    return this.present(await this.rowOf(principal, id));
  }

  /** @throws AbortedError `rev_moved` */
  async update(
    principal: Principal,
    id: string,
    { legalHold, ifMatch }: { legalHold?: boolean | undefined; ifMatch: string },
  ): Promise<WorkspaceView> {
    const known = await this.rowOf(principal, id);
    requireOwner(principal, known);
    if (legalHold !== undefined) requireAdministrator(principal);
    const changed = await this.ports.records.changeLatest(known, (row) => {
      requireRev(row, ifMatch);
      return { set: legalHold === undefined ? {} : { legalHold } };
    });
    return this.present(changed ?? known);
  }

  /** It goes with all its files, from now on. @throws FailedPreconditionError `legal_hold`; AbortedError `rev_moved` */
  async delete(principal: Principal, id: string, ifMatch: string): Promise<WorkspaceView> {
    const known = await this.rowOf(principal, id);
    requireOwner(principal, known);
    refusePart(known);
    const deleting = await this.ports.records.changeLatest(known, (row) => {
      requireRev(row, ifMatch);
      refuseHeld(row);
      return isUsable(row) ? { set: { state: 'deleting' as const } } : undefined;
    });
    // The sweep does it in any case.
    if (deleting) void this.ports.removal.remove(deleting);
    return this.present(deleting ?? { ...known, state: 'deleting' });
  }

  /** What it is to begin with, anew: the next sandbox brings it. */
  async setContent(principal: Principal, id: string, source: unknown, replace: boolean): Promise<WorkspaceView> {
    const content = contentOf(await this.checked(principal.tenantId, source), replace);
    return this.present(await this.begin(await this.changeable(principal, id, replace), content));
  }

  /** The same by a file. */
  async upload(
    principal: Principal,
    { workspaceId, filename, replace }: { workspaceId: string; filename: string; replace: boolean },
    bytes: AsyncIterable<Uint8Array>,
  ): Promise<WorkspaceView> {
    const row = await this.changeable(principal, workspaceId, replace);
    const name = checkedFilename(filename);
    const of = { tenantId: row.tenantId, workspaceId, filename: name };
    const upload = await this.ports.uploads.put(of, bytes);
    try {
      return this.present(await this.begin(row, { ...contentOf({ kind: 'upload' }, replace), upload }));
    } catch (error) {
      await this.ports.uploads.remove([upload.fileId]);
      throw error;
    }
  }

  /** Those of the tenant that live; whoever does not see all sessions is to be shown those of his own. */
  async listSandboxes({ tenantId }: Principal): Promise<SandboxView[]> {
    const living = await this.ports.inventory.list(tenantId);
    return living.filter(isOfSession).map(presentSandbox);
  }

  async getSandbox({ tenantId }: Principal, id: string): Promise<SandboxView> {
    return presentSandbox(await this.sandboxOf(tenantId, id));
  }

  /** What runs in it is lost; the workspace stays. */
  async endSandbox(principal: Principal, id: string): Promise<void> {
    requireAdministrator(principal);
    const { tenantId, sessionId } = await this.sandboxOf(principal.tenantId, id);
    await this.ports.release(tenantId, sessionId);
  }

  private async sandboxOf(tenantId: string, id: string): Promise<KnownSandbox> {
    const found = await this.ports.inventory.find(tenantId, id);
    if (found && isOfSession(found)) return found;
    throw new NotFoundError('sandbox_not_found', `sandbox ${id.slice(0, 64)} not found`);
  }

  private async changeable(principal: Principal, id: string, replace: boolean): Promise<WorkspaceDocument> {
    const row = await this.rowOf(principal, id);
    requireOwner(principal, row);
    refusePart(row);
    if (row.state === 'deleting')
      throw new FailedPreconditionError('workspace_deleting', 'The workspace is being deleted.');
    if (replace) refuseHeld(row);
    const isUntouched = row.content !== undefined && row.content.status !== 'ready';
    if (replace || isUntouched) return row;
    throw new FailedPreconditionError(
      'workspace_in_use',
      'The workspace has files already; with "replace": true all of them are removed first.',
    );
  }

  /** Its sandboxes end: none of them would look again. */
  private async begin(row: WorkspaceDocument, content: StoredContent): Promise<WorkspaceDocument> {
    const { records, inventory, release } = this.ports;
    const changed = await records.changeLatest(row, (latest) => {
      if (content.replace) refuseHeld(latest);
      return isUsable(latest) ? { set: { content } } : undefined;
    });
    if (!changed) throw workspaceNotFound(row._id);
    for (const { tenantId, sessionId } of await inventory.listOn(row)) await release(tenantId, sessionId);
    await this.forget(row.content?.upload);
    return changed;
  }

  private async forget(upload: StoredUpload | undefined): Promise<void> {
    if (upload && !this.ports.templates.blobs.has(upload.sha256)) await this.ports.uploads.remove([upload.fileId]);
  }

  private async rowOf(principal: Principal, id: string): Promise<WorkspaceDocument> {
    const row = /^[0-9a-f]{32}$/.test(id) ? await this.ports.records.find(principal.tenantId, id) : undefined;
    if (!row || !mayKnow(principal, row)) throw workspaceNotFound(id);
    return row;
  }

  private async checked(tenantId: string, source: unknown): Promise<ContentSource> {
    const { data, error } = ContentSource.safeParse(source);
    if (error) throw new InvalidArgumentError('bad_request', sentenceOf(error.issues[0]));
    if (data.kind !== 'template') return data;
    const { name = '', snapshot } = data;
    const isKnown = snapshot === undefined ? this.ports.templates.find(name) : await this.isOffered(tenantId, snapshot);
    if (isKnown) return data;
    const what = snapshot === undefined ? `template '${name}'` : `snapshot '${snapshot}' of a project`;
    throw new InvalidArgumentError('unknown_template', `There is no ${what}.`);
  }

  /** Those of projects are everybody's in the tenant. */
  private async isOffered(tenantId: string, snapshot: string): Promise<boolean> {
    const { workspaceId, n } = snapshotNamed(snapshot);
    const row = await this.ports.records.find(tenantId, workspaceId);
    if (!row?.key.startsWith('p/') || !isUsable(row)) return false;
    return (await this.ports.snapshots.list({ tenantId, workspaceId })).some((archive) => archive.n === n);
  }

  private present(row: WorkspaceDocument): WorkspaceView {
    return presentWorkspace(row, this.ports.retention);
  }
}

export function contentOf(source: ContentSource, replace: boolean): StoredContent {
  return { id: randomBytes(16).toString('hex'), source, replace, status: 'pending', losses: 0 };
}

/** Sandboxes for work without a session are nobody's business. */
function isOfSession({ sessionId }: KnownSandbox): boolean {
  return sessionId !== '' && utilityWorkspaceOf(sessionId) === undefined;
}

function refusePart({ parentId }: WorkspaceDocument): void {
  if (parentId === undefined) return;
  throw new FailedPreconditionError(
    'worktree_is_a_part',
    `A worktree is a part of workspace ${parentId}; remove it with DELETE /api/v_projects/{project}/worktrees/{worktree}.`,
  );
}

function requireRev({ rev }: WorkspaceDocument, ifMatch: string): void {
  if (ifMatch === '' || ifMatch === '*' || ifMatch.replace(/^W\//, '').replaceAll('"', '') === String(rev)) return;
  throw new AbortedError('rev_moved', `the workspace is at another revision, ${rev}; read it again`);
}

function checkedFilename(filename: string): string {
  if (filename.length <= 255 && !/[\p{Cc}/\\]/u.test(filename) && filename !== '.' && filename !== '..')
    return filename;
  throw new InvalidArgumentError('bad_request', "Invalid input: 'filename' must be a file's name, without a folder");
}

function sentenceOf(issue: { path: PropertyKey[]; message: string } | undefined): string {
  if (issue?.message.includes("'content")) return issue.message;
  const field = ['content', ...(issue?.path ?? [])].join('.');
  return `Invalid input: '${field}': ${(issue?.message ?? 'not usable').replace(/^Invalid input: /, '')}`;
}
