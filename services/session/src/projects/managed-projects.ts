import { isoMicros, type ManagedProject, type Principal, type sessionsPb } from '@margay/contracts';
import { AlreadyExistsError, InvalidArgumentError, NotFoundError, PermissionDeniedError } from '@margay/errors';
import type { Logger } from '@margay/platform';
import { requireDriver, seesAllSessions } from '../access/access-rules';
import { newSessionId } from '../sessions/request-ids';
import { contentIn, type ProjectWorkspaces } from '../workspaces/project-workspaces';
import type { ManagedProjectRepository, ManagedProjectRow } from './managed-project.repository';

const NAME_MAX_CHARS = 128;
const DESCRIPTION_MAX_CHARS = 2_000;
const TENANT_MAX = 500;
/** Where sandboxes show a workspace. */
const INSIDE = '/workspace';
const ID = /^[0-9a-f]{32}$/;
const PREFIX = 'managed:';

/** Projects whose files Margay keeps. Everybody of a tenant may work in them. */
export class ManagedProjects {
  constructor(
    private readonly rows: ManagedProjectRepository,
    private readonly workspaces: Pick<ProjectWorkspaces, 'declare' | 'retire'>,
    private readonly logger: Logger,
    /** @throws if a tenant cannot have that class of sandboxes */
    private readonly requireClass: (tenantId: string, name: string) => Promise<void>,
  ) {}

  /** @throws InvalidArgumentError `bad_request`; PermissionDeniedError `external_path_refused`; those of `declare`, `requireClass` */
  async create(
    principal: Principal,
    request: sessionsPb.CreateProjectRequest,
  ): Promise<{ project: ManagedProject; replayed: boolean }> {
    requireDriver(principal, 'sessions.create');
    const [name, description] = [checkedName(request.name), checkedDescription(request.description)];
    refusePath(request);
    const content = contentIn(request);
    const { tenantId, principal: owner } = principal;
    const { idempotencyKey, sandboxClass } = request;
    if (sandboxClass !== '') await this.requireClass(tenantId, sandboxClass);
    if ((await this.rows.list(tenantId, TENANT_MAX)).length >= TENANT_MAX)
      throw new InvalidArgumentError('projects_exhausted', `There are ${TENANT_MAX} projects; delete one first.`);
    const id = newSessionId(principal, idempotencyKey === '' ? '' : `project ${idempotencyKey}`);
    const asked = { name, description, content, ...(sandboxClass === '' ? {} : { sandboxClass }) };
    const made = await this.rows.find(tenantId, id);
    if (made) return { project: recordOf(repeated(made, asked)), replayed: true };
    const workspaceId = await this.workspaces.declare({ tenantId, projectId: id, owner, content });
    const now = new Date();
    const where = workspaceId === undefined ? {} : { workspaceId };
    const row: ManagedProjectRow = { _id: id, tenantId, ...asked, ...where, owner, createdAt: now, updatedAt: now };
    if (await this.rows.add(row)) return { project: recordOf(row), replayed: false };
    const other = await this.rows.find(tenantId, id);
    if (other) return { project: recordOf(repeated(other, asked)), replayed: true };
    throw keyReused();
  }

  async get({ tenantId }: Principal, id: string): Promise<ManagedProject> {
    return recordOf(await this.rowOf(tenantId, id));
  }

  async update(principal: Principal, request: sessionsPb.UpdateProjectRequest): Promise<ManagedProject> {
    const { projectId, name, description, sandboxClass } = request;
    await this.changeable(principal, projectId);
    if (sandboxClass) await this.requireClass(principal.tenantId, sandboxClass);
    const row = await this.rows.update(principal.tenantId, projectId, {
      ...(name === undefined ? {} : { name: checkedName(name) }),
      ...(description === undefined ? {} : { description: checkedDescription(description) }),
      ...(sandboxClass === undefined ? {} : { sandboxClass }),
      updatedAt: new Date(),
    });
    if (!row) throw notFound(projectId);
    return recordOf(row);
  }

  /** Runs in it go on to their end; no other one starts. */
  async delete(principal: Principal, id: string): Promise<void> {
    await this.changeable(principal, id);
    const { tenantId } = principal;
    if (!(await this.rows.update(tenantId, id, { deletedAt: new Date() }))) throw notFound(id);
    try {
      await this.workspaces.retire(tenantId, id);
      await this.rows.noteRetired(tenantId, id);
    } catch (error) {
      this.logger.warn({ projectId: id, tenantId, err: error }, 'the end of a project is told to its workspace later');
    }
  }

  /** The id of the project that a name means: `<id>` or `managed:<id>`. */
  async find(tenantId: string, named: string): Promise<string | undefined> {
    const id = named.startsWith(PREFIX) ? named.slice(PREFIX.length) : named;
    return ID.test(id) ? (await this.rows.find(tenantId, id))?._id : undefined;
  }

  /** Of sandboxes of its sessions that name none. */
  async classOf(tenantId: string, id: string): Promise<string | undefined> {
    return (await this.rows.find(tenantId, id))?.sandboxClass;
  }

  async list(tenantId: string): Promise<ManagedProject[]> {
    return (await this.rows.list(tenantId, TENANT_MAX)).map(recordOf);
  }

  private async changeable(principal: Principal, id: string): Promise<void> {
    requireDriver(principal, 'sessions.create');
    const { owner } = await this.rowOf(principal.tenantId, id);
    // Who sees every session of the tenant is one of its administrators.
    if (owner === principal.principal || seesAllSessions(principal)) return;
    const scope = 'projects.admin';
    throw new PermissionDeniedError('permission_denied', `this needs the scope ${scope}`, { details: { scope } });
  }

  private async rowOf(tenantId: string, id: string): Promise<ManagedProjectRow> {
    const row = ID.test(id) ? await this.rows.find(tenantId, id) : undefined;
    if (!row) throw notFound(id);
    return row;
  }
}

/** How a session's binding names a managed project. */
export function bindingName(id: string): string {
  return `${PREFIX}${id}`;
}

/** The id of the managed project that a binding names. */
export function managedIdIn(project: string): string | undefined {
  return project.startsWith(PREFIX) ? project.slice(PREFIX.length) : undefined;
}

function recordOf(row: ManagedProjectRow): ManagedProject {
  const { _id, name, description, createdAt, updatedAt, workspaceId, sandboxClass } = row;
  return {
    project_id: _id,
    name,
    description,
    path: INSIDE,
    path_source: 'auto',
    folder_created: true,
    created_at: isoMicros(createdAt.getTime() * 1_000),
    updated_at: isoMicros(updatedAt.getTime() * 1_000),
    parent_project_id: null,
    branch: null,
    is_worktree: false,
    ...(workspaceId === undefined ? {} : { workspace_id: workspaceId }),
    ...(sandboxClass === undefined ? {} : { sandbox_class: sandboxClass }),
  };
}

function refusePath({ path }: sessionsPb.CreateProjectRequest): void {
  if (path === '') return;
  throw new PermissionDeniedError(
    'external_path_refused',
    "'path': Margay keeps the files of its projects itself; folders of the host are projects of the configuration.",
  );
}

/** @throws AlreadyExistsError if something else was asked under the same key */
function repeated(
  made: ManagedProjectRow,
  asked: Required<Pick<ManagedProjectRow, 'name' | 'description' | 'content'>> &
    Pick<ManagedProjectRow, 'sandboxClass'>,
): ManagedProjectRow {
  const { name, description, sandboxClass, content = { kind: 'empty' } } = made;
  const hasSameWords = name === asked.name && description === asked.description && sandboxClass === asked.sandboxClass;
  if (hasSameWords && isSame(content, asked.content)) return made;
  throw keyReused();
}

function keyReused(): Error {
  return new AlreadyExistsError('idempotency_key_reused', 'this key was used with another body');
}

/** The store keeps the order of fields. */
function isSame(a: object, b: object): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}

function checkedName(name: string): string {
  const trimmed = name.trim();
  if (trimmed === '') throw new InvalidArgumentError('bad_request', "Invalid input: 'name' is required");
  // eslint-disable-next-line no-control-regex -- these are what is refused
  if (trimmed.length <= NAME_MAX_CHARS && !/[\u0000-\u001f\u007f]/.test(trimmed)) return trimmed;
  const message = `Invalid input: 'name' has at most ${NAME_MAX_CHARS} characters, on one line`;
  throw new InvalidArgumentError('bad_request', message);
}

function checkedDescription(text: string): string {
  if (text.length <= DESCRIPTION_MAX_CHARS) return text;
  const message = `Invalid input: 'description' has at most ${DESCRIPTION_MAX_CHARS} characters`;
  throw new InvalidArgumentError('bad_request', message);
}

function notFound(id: string): Error {
  return new NotFoundError('project_not_found', `project ${id.slice(0, 64)} not found`);
}
