import type { RequestOptions } from './options';
import type { Content, Sandbox, Snapshot, Workspace } from './records';
import { requestOptions } from './session';
import type { Transport } from './transport';

export interface ContentOptions extends RequestOptions {
  /** All that is there goes first. Without it a workspace that has files answers `FAILED_PRECONDITION` `workspace_in_use`. */
  replace?: boolean;
}

export interface UploadOptions extends ContentOptions {
  /** Its ending tells an archive; without it the first bytes do. */
  filename?: string;
}

/** Where files lie, and the sandboxes that work there. Unknown, foreign and private ones are `NOT_FOUND`. */
export class Workspaces {
  constructor(private readonly transport: Transport) {}

  /** Newest first. */
  async *all(options: RequestOptions = {}): AsyncGenerator<Workspace, void, undefined> {
    for (let cursor: string | undefined; ;) {
      const call = { ...requestOptions(options), query: { cursor } };
      const page = await this.transport.request<Page>('GET', '/api/workspaces', call);
      yield* page.workspaces;
      if (page.next_cursor === null) return;
      cursor = page.next_cursor;
    }
  }

  get(id: string, options: RequestOptions = {}): Promise<Workspace> {
    return this.transport.request('GET', pathOf(id), options);
  }

  /** While it is held it is not deleted. Administrators only. */
  hold(id: string, isHeld: boolean, options: RequestOptions = {}): Promise<Workspace> {
    const call = { ...requestOptions(options), body: { legal_hold: isHeld }, repeatable: true };
    return this.transport.request('PATCH', pathOf(id), call);
  }

  /** With all its files. It is gone once `get` says so. */
  delete(id: string, options: RequestOptions = {}): Promise<Workspace> {
    return this.transport.request('DELETE', pathOf(id), options);
  }

  /** What it is to begin with, anew: the next sandbox brings it, and `get` tells what became of it. */
  begin(id: string, content: Content, { replace, ...options }: ContentOptions = {}): Promise<Workspace> {
    const call = { ...requestOptions(options), body: { ...content, replace }, repeatable: true };
    return this.transport.request('POST', `${pathOf(id)}/content`, call);
  }

  /** The same by a file: an archive of at most 2 GiB, or a single file of at most 100 MiB. Give it a `timeoutMs`. */
  upload(id: string, file: Blob | Uint8Array<ArrayBuffer>, options: UploadOptions = {}): Promise<Workspace> {
    const { filename, replace, ...others } = options;
    const query = { filename, replace: replace === true ? 'true' : undefined };
    const call = { ...requestOptions(others), query, file, repeatable: true };
    return this.transport.request('POST', `${pathOf(id)}/content`, call);
  }

  /** Archives that are kept, newest first. */
  async snapshots(id: string, options: RequestOptions = {}): Promise<Snapshot[]> {
    const { snapshots } = await this.transport.request<{ snapshots: Snapshot[] }>(
      'GET',
      `${pathOf(id)}/snapshots`,
      requestOptions(options),
    );
    return snapshots;
  }

  /** Archives it as it is now. Give it a `timeoutMs` that a large one needs. @returns the newest, an old one if nothing changed */
  snapshot(id: string, options: RequestOptions = {}): Promise<Snapshot> {
    return this.transport.request('POST', `${pathOf(id)}/snapshot`, { ...requestOptions(options), repeatable: true });
  }

  /** Its files are those of a snapshot, the newest unless named. `FAILED_PRECONDITION` `workspace_in_use` while a session works there. */
  restore(id: string, { n, ...options }: RequestOptions & { n?: number } = {}): Promise<Snapshot> {
    const call = { ...requestOptions(options), body: { n }, repeatable: true };
    return this.transport.request('POST', `${pathOf(id)}/restore`, call);
  }

  /** Its volume is left where it is: the newest snapshot goes to a new one with the next sandbox. */
  relocate(id: string, options: RequestOptions = {}): Promise<Snapshot> {
    return this.transport.request('POST', `${pathOf(id)}/relocate`, { ...requestOptions(options), repeatable: true });
  }

  /** Those that live, of sessions that the caller may see. */
  async sandboxes(options: RequestOptions = {}): Promise<Sandbox[]> {
    return (await this.transport.request<{ sandboxes: Sandbox[] }>('GET', '/api/sandboxes', options)).sandboxes;
  }

  /** What runs in it is lost, its workspace stays. Administrators only. */
  async endSandbox(id: string, options: RequestOptions = {}): Promise<void> {
    await this.transport.request('DELETE', `/api/sandboxes/${encodeURIComponent(id)}`, options);
  }
}

interface Page {
  workspaces: Workspace[];
  next_cursor: string | null;
}

const pathOf = (id: string): string => `/api/workspaces/${encodeURIComponent(id)}`;
