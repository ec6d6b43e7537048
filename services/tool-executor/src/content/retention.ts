import type { WorkspaceDocument } from './workspace-document';

const DAY_MS = 24 * 3_600_000;

export interface RetentionSettings {
  /** After its last use, of a session; after its end, of a project. */
  sessionDays: number;
  projectDays: number;
  /** Session days that a tenant has of its own. */
  sessionDaysByTenant: Readonly<Record<string, number>>;
}

/** When workspaces go by themselves (cluster §2.6). */
export class Retention {
  constructor(private readonly settings: RetentionSettings) {}

  /** Undefined: it stays as long as its project. */
  expiryOf(row: Pick<WorkspaceDocument, 'tenantId' | 'key' | 'lastUsedAt' | 'retainUntil'>): Date | undefined {
    if (row.retainUntil) return row.retainUntil;
    if (!row.key.startsWith('s/')) return undefined;
    return new Date(row.lastUsedAt.getTime() + this.sessionDays(row.tenantId) * DAY_MS);
  }

  isDue(row: WorkspaceDocument, now: Date): boolean {
    const expiry = this.expiryOf(row);
    const isGoing = row.state === 'deleting' || row.state === 'deleted';
    return !isGoing && row.legalHold !== true && expiry !== undefined && expiry <= now;
  }

  /** Of a project that is gone now. */
  retainedUntil(now: Date): Date {
    return new Date(now.getTime() + this.settings.projectDays * DAY_MS);
  }

  /** None that was used later can be due. */
  unusedBefore(now: Date): Date {
    const { sessionDays, sessionDaysByTenant } = this.settings;
    const least = Math.min(sessionDays, ...Object.values(sessionDaysByTenant));
    return new Date(now.getTime() - least * DAY_MS);
  }

  private sessionDays(tenantId: string): number {
    const { sessionDays, sessionDaysByTenant } = this.settings;
    return Object.hasOwn(sessionDaysByTenant, tenantId) ? (sessionDaysByTenant[tenantId] ?? sessionDays) : sessionDays;
  }
}
