import { settingsOf, type ClientOptions, type RequestOptions } from './options';
import { MultiplexedStream, type MultiplexItem, type MultiplexOptions } from './multiplexed-stream';
import type { Content, ManagedProject, Models, Project, Ticket, Tool, Worktree } from './records';
import { requestOptions, Session } from './session';
import { Sessions } from './sessions';
import { Transport, withKey, type Call } from './transport';
import { Workspaces } from './workspaces';

export interface ProjectOptions extends RequestOptions {
  name: string;
  description?: string;
  /** What its files begin with; nothing unless given. */
  content?: Content | { kind: 'upload' };
}

/** Typed access to one gateway. It holds no connection; making it sends nothing. */
export class MargayClient {
  readonly sessions: Sessions;
  readonly workspaces: Workspaces;
  readonly #transport: Transport;

  /** `INVALID_ARGUMENT` (`bad_options`) names a faulty option. */
  constructor(options: ClientOptions) {
    this.#transport = new Transport(settingsOf(options));
    this.sessions = new Sessions(this.#transport);
    this.workspaces = new Workspaces(this.#transport);
  }

  session(id: string): Session {
    return new Session(this.#transport, id);
  }

  /** Items of many sessions over one connection, until it is aborted or the loop is left. Errors as with `stream`. */
  multiplex(options: MultiplexOptions): AsyncGenerator<MultiplexItem, void, undefined> {
    return new MultiplexedStream(this.#transport, options).items();
  }

  /** For links that cannot carry a key: streams of `EventSource`, downloads. */
  ticket(
    purpose: 'stream' | 'blob',
    options: RequestOptions & { sessionIds?: readonly string[]; user?: boolean } = {},
  ): Promise<Ticket> {
    const body = { purpose, session_ids: options.sessionIds, user: options.user };
    return this.request('POST', '/api/tickets', { ...requestOptions(options), body, repeatable: true });
  }

  async tools(options: RequestOptions & { project?: string } = {}): Promise<Tool[]> {
    const call = { ...requestOptions(options), query: { project: options.project } };
    return (await this.request<{ tools: Tool[] }>('GET', '/api/tools', call)).tools;
  }

  async projects(options: RequestOptions = {}): Promise<Project[]> {
    return (await this.request<{ projects: Project[] }>('GET', '/api/projects', options)).projects;
  }

  /** A project whose files Margay keeps. Of one that begins with an upload, send the file to its workspace. */
  createProject({ name, description, content, ...options }: ProjectOptions): Promise<ManagedProject> {
    const body = { name, description, content };
    return this.request('POST', '/api/v_projects', withKey(this.#transport, { ...requestOptions(options), body }));
  }

  /** Working trees of a project beside its own, by any form of its name. */
  async worktrees(project: string, options: RequestOptions = {}): Promise<Worktree[]> {
    return (await this.request<{ worktrees: Worktree[] }>('GET', worktreesOf(project), options)).worktrees;
  }

  /** With `base` the branch is made from it. A repeat for its branch finds it. `ABORTED`: it is checked out elsewhere. */
  createWorktree(
    project: string,
    { branch, base, ...options }: RequestOptions & { branch: string; base?: string },
  ): Promise<Worktree> {
    const call = { ...requestOptions(options), body: { branch, base }, repeatable: true };
    return this.request('POST', worktreesOf(project), call);
  }

  /** `FAILED_PRECONDITION` `worktree_dirty`: something would be lost with it. No error where there is none. */
  async deleteWorktree(
    project: string,
    id: string,
    { force, ...options }: RequestOptions & { force?: boolean } = {},
  ): Promise<void> {
    const call = { ...requestOptions(options), query: { force: force === true ? '1' : undefined } };
    await this.request('DELETE', `${worktreesOf(project)}/${encodeURIComponent(id)}`, call);
  }

  models(options: RequestOptions = {}): Promise<Models> {
    return this.request('GET', '/api/models', options);
  }

  /**
   * Any other route. Repeated after a network failure, 429, 502, 503 or 504 if the method, an `idempotencyKey` or
   * `repeatable` makes that safe. `path` begins with a slash; put parameters into `query`.
   */
  request<T = unknown>(method: string, path: string, call: Call = {}): Promise<T> {
    return this.#transport.request<T>(method, path, call);
  }
}

const worktreesOf = (project: string): string => `/api/v_projects/${encodeURIComponent(project)}/worktrees`;
