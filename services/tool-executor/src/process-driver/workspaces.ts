import { execFile } from 'node:child_process';
import { chown, mkdir, realpath, stat, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { FailedPreconditionError, InvalidArgumentError } from '@margay/errors';
import type { ClaimWorkspace } from '../driver/workspace-key';
import type { User } from './sandbox-folder';
import type { SandboxRecord } from './sandbox-records';
import { placeOfWorktree, type WorktreePlace } from './worktree-place';

const run = promisify(execFile);

export interface WorkspacesOptions {
  /** `$MARGAY_HOME`. */
  home: string;
  isRoot: boolean;
}

export interface Workspace {
  /** Resolved path on the host. */
  folder: string;
  /** Whose files they are; undefined = the sandbox may choose a user. */
  owner?: User;
  /** Of a worktree: the repository that it needs, and which folders both are. */
  repository?: string;
  identities?: WorktreePlace['identities'];
}

/** Folders of managed projects are reached as such only. */
const MANAGED = /^p-[0-9a-f]{32}(\/|$)/;
const PROJECT_NOTES = '# About this project\n\nWhat agents are to know of it.\n';

/** Folders that hold the machine, not a project. */
const REFUSED = [
  '/',
  '/bin',
  '/boot',
  '/dev',
  '/etc',
  '/lib',
  '/lib64',
  '/proc',
  '/root',
  '/run',
  '/sbin',
  '/sys',
  '/usr',
  '/var',
];

export interface Claim {
  tenantId: string;
  sessionId: string;
  workspace: ClaimWorkspace;
}

/** Decides where a session's files lie and whose they are. A user's folder is never given to another user. */
export class Workspaces {
  private readonly own: string;

  constructor(private readonly options: WorkspacesOptions) {
    this.own = path.join(options.home, 'workspaces');
  }

  async locate({ sessionId, tenantId, workspace }: Claim, records: readonly SandboxRecord[] = []): Promise<Workspace> {
    if (workspace.kind === 'worktree') return this.worktree({ sessionId, tenantId, workspace }, records);
    if (workspace.kind === 'own') return this.makeOwn(sessionId);
    if (workspace.kind === 'session') return this.ownOf(workspace.sessionId);
    if (workspace.kind === 'project') return this.makeShared(workspace.projectId);
    const folder = await realpath(workspace.path).catch((cause: unknown) => {
      throw new FailedPreconditionError('workspace_missing', `There is no folder ${workspace.path}.`, { cause });
    });
    await this.refuseUnfit(folder);
    if (this.isCopy(folder)) refuseForeign(folder, { sessionId, tenantId }, records);
    const facts = await stat(folder);
    if (!facts.isDirectory()) throw new FailedPreconditionError('workspace_missing', `${folder} is not a folder.`);
    if (!this.options.isRoot) return { folder };
    // A copy that npm start made is ours to give away, once: sessions that share it share its user too.
    const isGiven = records.some((record) => record.folder === folder && record.uid === facts.uid);
    if (this.isCopy(folder) && !isGiven) return { folder };
    if (facts.uid !== 0) return { folder, owner: { uid: facts.uid, gid: facts.gid } };
    throw ownedByRoot(folder);
  }

  /** Gives a folder of ours to the sandbox's user, with all its files if it was somebody else's. */
  async give({ folder, owner }: Workspace, user: User): Promise<void> {
    if (!this.options.isRoot || owner) return;
    const facts = await stat(folder);
    if (facts.uid === user.uid && facts.gid === user.gid) return;
    await run('chown', ['-Rh', `${user.uid}:${user.gid}`, '--', folder]);
  }

  private async worktree(
    { workspace, ...claim }: Claim & { workspace: { kind: 'worktree' } },
    records: readonly SandboxRecord[],
  ): Promise<Workspace> {
    const project = await this.locate({ ...claim, workspace: workspace.of }, records);
    const { folder, repository, owner, identities } = await placeOfWorktree(project.folder, workspace.slug);
    if (this.options.isRoot && owner.uid === 0) throw ownedByRoot(folder);
    return { folder, repository, identities, ...(this.options.isRoot ? { owner } : {}) };
  }

  private async makeOwn(sessionId: string): Promise<Workspace> {
    if (!/^[\w-]+$/.test(sessionId)) throw new InvalidArgumentError('bad_session_id', 'The session id is malformed.');
    return { folder: await realpath((await this.make(sessionId)).folder) };
  }

  /** Work for a session that has no part in it leaves its files to its user. */
  private async ownOf(sessionId: string): Promise<Workspace> {
    return this.ownedByItsUser((await this.makeOwn(sessionId)).folder);
  }

  /** All sessions of a project share its folder, and with it the user of the first of them. */
  private async makeShared(projectId: string): Promise<Workspace> {
    if (!/^[0-9a-f]{32}$/.test(projectId))
      throw new InvalidArgumentError('bad_project_id', 'The project id is malformed.');
    const made = await this.make(`p-${projectId}`);
    if (made.isNew) await writeFile(path.join(made.folder, 'CLAUDE.md'), PROJECT_NOTES);
    return this.ownedByItsUser(await realpath(made.folder));
  }

  private async ownedByItsUser(folder: string): Promise<Workspace> {
    const { uid, gid } = await stat(folder);
    return this.options.isRoot && uid !== 0 ? { folder, owner: { uid, gid } } : { folder };
  }

  private async make(name: string): Promise<{ folder: string; isNew: boolean }> {
    const folder = path.join(this.own, name);
    await mkdir(this.own, { recursive: true, mode: 0o711 });
    const isNew = await mkdir(folder, { mode: 0o700 }).then(
      () => true,
      (error: NodeJS.ErrnoException) => {
        if (error.code === 'EEXIST') return false;
        throw error;
      },
    );
    if (isNew && this.options.isRoot) await chown(folder, 0, 0);
    return { folder, isNew };
  }

  private isCopy(folder: string): boolean {
    return folder.startsWith(this.own + path.sep);
  }

  private async refuseUnfit(folder: string): Promise<void> {
    const home = await realpath(this.options.home).catch(() => this.options.home);
    const holdsHome = home === folder || home.startsWith(folder === '/' ? '/' : folder + path.sep);
    const isManaged = MANAGED.test(path.relative(this.own, folder));
    const isInHome = folder.startsWith(home + path.sep) && !folder.startsWith(path.join(home, 'workspaces') + path.sep);
    if (!REFUSED.includes(folder) && !holdsHome && !isInHome && !isManaged) return;
    throw new FailedPreconditionError(
      'workspace_refused',
      `${folder} cannot be a workspace: it holds parts of the system or of Margay itself. Choose a project folder.`,
    );
  }
}

/** Nobody gets at another tenant's folder, or at the one that belongs to a session alone, by naming its path. */
function refuseForeign(
  folder: string,
  { tenantId, sessionId }: Omit<Claim, 'workspace'>,
  records: readonly SandboxRecord[],
): void {
  const isForeign = records.some((record) => {
    const isMeant = [record.folder, folder].some((outer) =>
      [record.folder, folder].every((inner) => inner === outer || inner.startsWith(outer + path.sep)),
    );
    const isAlone = path.basename(record.folder) === record.sessionId;
    return isMeant && (record.tenantId !== tenantId || (isAlone && record.sessionId !== sessionId));
  });
  if (!isForeign) return;
  throw new FailedPreconditionError(
    'workspace_refused',
    `${folder} cannot be a workspace: it belongs to another session. Choose a project folder.`,
  );
}

function ownedByRoot(folder: string): Error {
  return new FailedPreconditionError(
    'workspace_owned_by_root',
    `The folder ${folder} belongs to root, and a model's shell never runs as root. Start with --workspace-copy to work on a copy, or give the folder to an ordinary user.`,
  );
}

/** Tells a folder from another one of the same name; empty when there is none. */
export async function folderId(folder: string): Promise<string> {
  return stat(folder).then(
    ({ dev, ino }) => `${dev}:${ino}`,
    () => '',
  );
}
