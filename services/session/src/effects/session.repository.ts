import { sessionState, type Head } from '@margay/log';
import type { Collection, Filter } from 'mongodb';
import { Projector } from '../store/project';

/** Projection of a session's head; a pure function of the log, restored from it at will. */
export interface SessionRow {
  _id: string;
  tenantId: string;
  /** Commit this row shows: a lower bound of the log's end. */
  c: number;
  owner: string;
  tag: string | null;
  createdTs: number;
  updatedTs: number;
  title: string | null;
  hasRun: boolean;
  isRunning: boolean;
  projects: string[];
  contextJson: string;
  stateJson: string;
}

export interface SessionQuery {
  tenantId: string;
  /** Only sessions of this principal. */
  owner?: string;
  projects: string[];
  limit: number;
  offset: number;
}

/** The collection `sessions`. */
export class SessionRepository {
  private readonly projector: Projector<SessionRow>;

  constructor(private readonly rows: Collection<SessionRow>) {
    this.projector = new Projector(rows);
  }

  async createIndexes(): Promise<void> {
    await this.rows.createIndex({ tenantId: 1, createdTs: -1 }, { name: 'tenant_created_v1' });
    await this.rows.createIndex({ tenantId: 1, owner: 1, createdTs: -1 }, { name: 'tenant_owner_created_v1' });
  }

  /** An older head never overwrites a newer one. */
  project(head: Head): Promise<void> {
    return this.projector.project(rowOf(head));
  }

  /** Newest first; sessions that never had a run are hidden. */
  list(query: SessionQuery): Promise<SessionRow[]> {
    const filter: Filter<SessionRow> = {
      tenantId: query.tenantId,
      hasRun: true,
      ...(query.owner === undefined ? {} : { owner: query.owner }),
      ...(query.projects.length === 0 ? {} : { projects: { $in: query.projects } }),
    };
    return this.rows.find(filter).sort({ createdTs: -1 }).skip(query.offset).limit(query.limit).toArray();
  }
}

function rowOf(head: Head): SessionRow {
  return {
    _id: head.sessionId,
    tenantId: head.tenantId,
    c: head.c,
    owner: head.owner,
    tag: head.tag,
    createdTs: head.createdTs,
    updatedTs: head.ts,
    title: head.title,
    hasRun: head.runNo > 0,
    isRunning: head.run !== null,
    projects: head.binding.project === null ? [] : [head.binding.project],
    contextJson: JSON.stringify(head.context),
    stateJson: JSON.stringify(sessionState(head)),
  };
}
