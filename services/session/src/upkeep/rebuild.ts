import { readConfirmedTip, type Head } from '@margay/log';
import type { MongoCommitStore } from '../commits/mongo-commit-store';
import type { SessionRepository } from '../effects/session.repository';
import { translateStoreError } from '@margay/platform';
import type { SessionRows } from './derived-rows';

const BATCH = 200;

export interface RebuildPorts {
  store: MongoCommitStore;
  sessions: Pick<SessionRepository, 'idsAfter'>;
  projections: SessionRows[];
}

export interface Rebuilt {
  /** Sessions whose rows were compared with their logs. */
  sessions: number;
  /** Rows that were missing, wrong, or of no session. */
  rows: number;
  /** Sessions whose logs can't be read; their rows stay as they are. */
  unreadable: { sessionId: string; problem: string }[];
}

/** Compares the rows of one session with its log and puts them right. @returns how many were wrong */
export async function restoreSession(
  { store, projections }: Pick<RebuildPorts, 'store' | 'projections'>,
  sessionId: string,
): Promise<number> {
  const readHead = async (): Promise<Head> => (await readConfirmedTip(store, sessionId)).head;
  let wrong = 0;
  for (const rows of projections) wrong += await rows.restore(sessionId, readHead);
  return wrong;
}

/**
 * Restores all projections from the logs: what is missing is written, what no log says is removed. Safe beside a platform
 * that serves, and safe to break off and to repeat: no list is empty meanwhile, and no newer row is overwritten. A log
 * that can't be read holds up no other.
 */
export async function rebuildAll(
  ports: RebuildPorts,
  onProgress: (rebuilt: Rebuilt) => void = () => undefined,
): Promise<Rebuilt> {
  const total: Rebuilt = { sessions: 0, rows: 0, unreadable: [] };
  for await (const sessionId of pages((after) => ports.store.sessionsAfter(after, BATCH))) {
    await rebuildOne(ports, sessionId, total);
    total.sessions += 1;
    if (total.sessions % BATCH === 0) onProgress(total);
  }
  // Rows whose log is gone have no session to be found by.
  for await (const sessionId of pages((after) => ports.sessions.idsAfter(after, BATCH)))
    if (!(await hasCommits(ports.store, sessionId))) await rebuildOne(ports, sessionId, total);
  return total;
}

async function rebuildOne(ports: RebuildPorts, sessionId: string, total: Rebuilt): Promise<void> {
  try {
    total.rows += await restoreSession(ports, sessionId);
  } catch (error) {
    // An outage says nothing about the session.
    if (!(error instanceof Error) || translateStoreError(error) !== error) throw error;
    total.unreadable.push({ sessionId, problem: error.message });
  }
}

async function hasCommits(store: MongoCommitStore, sessionId: string): Promise<boolean> {
  for await (const _ of store.stored(sessionId)) return true;
  return false;
}

/** All ids of a collection that is read in pages. */
export async function* pages(next: (after: string) => Promise<string[]>): AsyncIterable<string> {
  for (let after = ''; ;) {
    const page = await next(after);
    yield* page;
    const last = page.at(-1);
    if (last === undefined) return;
    after = last;
  }
}
