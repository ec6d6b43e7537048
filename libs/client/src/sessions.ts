import type { RequestOptions } from './options';
import type { SessionSummary } from './records';
import { bindingBody, requestOptions, Session, type Binding } from './session';
import { withKey, type Transport } from './transport';

export type CreateOptions = RequestOptions &
  Binding & {
    /** A known tag gives its session again; a new one is given to the new session. */
    tag?: string;
    /** The operator's template of its sandboxes; default: that of its project, else of the tenant. */
    sandboxClass?: string;
  };

export interface ListOptions extends RequestOptions {
  project?: string | readonly string[];
  /** Absent = all, true = only pinned ones, false = none of them. */
  pinned?: boolean;
  includeArchived?: boolean;
  /** Rows per request; default 50. */
  pageSize?: number;
}

export class Sessions {
  constructor(private readonly transport: Transport) {}

  async create(options: CreateOptions = {}): Promise<Session> {
    const body = { ...bindingBody(options), session_tag: options.tag, sandbox_class: options.sandboxClass };
    const call = withKey(this.transport, { ...requestOptions(options), body });
    const { session_id: id } = await this.transport.request<{ session_id: string }>('POST', '/api/sessions', call);
    return new Session(this.transport, id);
  }

  /** Its summary; `NOT_FOUND` (`session_not_found`) also for sessions of others. */
  get(id: string, options: RequestOptions = {}): Promise<SessionSummary> {
    return new Session(this.transport, id).summary(options);
  }

  /** Pinned ones first, then the newest; pages are fetched as the loop asks for them. */
  async *list(options: ListOptions = {}): AsyncGenerator<SessionSummary, void, undefined> {
    const { project, pinned, includeArchived, pageSize = 50 } = options;
    const seen = new Set<string>();
    for (let offset = 0; ; offset += pageSize) {
      const query = { project, pinned, include_archived: includeArchived, limit: pageSize, offset };
      const call = { ...requestOptions(options), query };
      const page = await this.transport.request<{ sessions: SessionSummary[] }>('GET', '/api/sessions', call);
      for (const row of page.sessions) {
        // A session that came or went between two pages shifts the rows.
        if (!seen.has(row.session_id)) yield row;
        seen.add(row.session_id);
      }
      if (page.sessions.length < pageSize) return;
    }
  }
}
