import { emptyHead, sessionState, type Head } from '@margay/log';
import type { Collection, Filter } from 'mongodb';
import { isDuplicateKey } from '@margay/platform';
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
  /** A fork that was never finished: its log is removed, and nothing can make it a session any more. */
  isDead?: true;
}

/** Above every number: no head replaces the row of a dead fork. */
const DEAD_C = Number.MAX_SAFE_INTEGER;

export interface SessionQuery {
  tenantId: string;
  /** Only sessions of this principal. */
  owner?: string;
  projects: string[];
  /** Only these, whether they had a run or not; empty = any that had one. */
  sessionIds: string[];
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
    await this.rows.createIndex({ tenantId: 1, projects: 1 }, { name: 'tenant_projects_v1' });
    await this.rows.createIndex({ isRunning: 1, _id: 1 }, { name: 'running_v1' });
  }

  /** An older head never overwrites a newer one. */
  project(head: Head): Promise<void> {
    return this.projector.project(sessionRowOf(head));
  }

  async find(sessionId: string): Promise<SessionRow | undefined> {
    return (await this.rows.findOne({ _id: sessionId })) ?? undefined;
  }

  /** Takes the place at which a half-made fork would become visible. @returns false where a session is there already */
  async bury(sessionId: string, tenantId: string): Promise<boolean> {
    const row = sessionRowOf({ ...emptyHead(sessionId), tenantId });
    try {
      await this.rows.insertOne({ ...row, c: DEAD_C, isDead: true });
      return true;
    } catch (error) {
      if (!isDuplicateKey(error)) throw error;
      return (await this.find(sessionId))?.isDead === true;
    }
  }

  /** Ids of sessions whose rows say that a run is active, in their order, behind this one. */
  async runningAfter(sessionId: string, limit: number): Promise<string[]> {
    const rows = this.rows.find({ isRunning: true, _id: { $gt: sessionId } });
    return (await rows.sort({ _id: 1 }).limit(limit).project<{ _id: string }>({ _id: 1 }).toArray()).map(({ _id }) => _id); // prettier-ignore
  }

  /** Ids of all rows but those of dead forks, in their order, behind this one. */
  async idsAfter(sessionId: string, limit: number): Promise<string[]> {
    const rows = this.rows.find({ _id: { $gt: sessionId }, isDead: { $ne: true } });
    return (await rows.sort({ _id: 1 }).limit(limit).project<{ _id: string }>({ _id: 1 }).toArray()).map(({ _id }) => _id); // prettier-ignore
  }

  /** States of these sessions, as far as they have rows. */
  states(sessionIds: string[]): Promise<Pick<SessionRow, '_id' | 'c' | 'stateJson'>[]> {
    return this.rows.find({ _id: { $in: sessionIds } }).project<Pick<SessionRow, '_id' | 'c' | 'stateJson'>>({ c: 1, stateJson: 1 }).toArray(); // prettier-ignore
  }

  /** Ids of sessions that are or were bound to a project and are not over. Rows may be behind their logs. */
  async boundTo(tenantId: string, project: string): Promise<string[]> {
    const rows = await this.rows.find({ tenantId, projects: project }).project<Pick<SessionRow, '_id' | 'isRunning' | 'stateJson'>>({ isRunning: 1, stateJson: 1 }).toArray(); // prettier-ignore
    const isOver = ({ isRunning, stateJson }: (typeof rows)[number]): boolean =>
      !isRunning && (JSON.parse(stateJson) as { terminated?: boolean }).terminated === true;
    return rows.filter((row) => !isOver(row)).map(({ _id }) => _id);
  }

  /** Newest first; sessions that never had a run are hidden, but for those that are named. */
  list(query: SessionQuery): Promise<SessionRow[]> {
    const filter: Filter<SessionRow> = {
      tenantId: query.tenantId,
      ...(query.sessionIds.length === 0 ? { hasRun: true } : { _id: { $in: query.sessionIds }, isDead: { $ne: true } }),
      ...(query.owner === undefined ? {} : { owner: query.owner }),
      ...(query.projects.length === 0 ? {} : { projects: { $in: query.projects } }),
    };
    return this.rows.find(filter).sort({ createdTs: -1 }).skip(query.offset).limit(query.limit).toArray();
  }
}

/** Every project that the session is or was bound to, the present one last. */
export function projectsOf({ formerProjects = [], binding }: Head): string[] {
  return binding.project === null ? formerProjects : [...formerProjects, binding.project];
}

/** What the row of a session says; a pure function of its head. */
export function sessionRowOf(head: Head): SessionRow {
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
    projects: projectsOf(head),
    contextJson: JSON.stringify(head.context),
    stateJson: JSON.stringify(sessionState(head)),
  };
}
