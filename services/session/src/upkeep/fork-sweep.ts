import { isHalfMade, readConfirmedTip } from '@margay/log';
import type { MongoCommitStore } from '../commits/mongo-commit-store';
import type { SessionRepository } from '../effects/session.repository';
import { eachOf, type Sweep } from '@margay/platform';
import type { ForkRepository, ForkRow } from '../sessions/fork.repository';
import type { ForkService } from '../sessions/fork.service';

const EVERY_MS = 60_000;
const BATCH = 20;

export interface ForkSweepPorts {
  store: MongoCommitStore;
  sessions: Pick<SessionRepository, 'bury' | 'find'>;
  forks: ForkRepository;
  service: Pick<ForkService, 'complete'>;
}

/** Forks that nobody finished within an hour. */
export function forkSweep(ports: ForkSweepPorts): Sweep {
  return {
    name: 'forks',
    everyMs: EVERY_MS,
    async sweep() {
      const orphans = await ports.forks.orphans(Date.now(), BATCH);
      await eachOf(orphans, async (row) => {
        // What can't be settled now makes way for others.
        await ports.forks.postpone(row._id, Date.now());
        await settleFork(ports, row);
      });
      return orphans.length;
    },
  };
}

/**
 * A fork whose log is whole becomes a session. Of any other first the place of its row is taken, so that nobody can make
 * it visible any more; then its commits are removed, and once more a day later.
 */
export async function settleFork(ports: ForkSweepPorts, { _id: sessionId, tenantId, isDead }: ForkRow): Promise<void> {
  const { store, sessions, forks, service } = ports;
  const { head } = await readConfirmedTip(store, sessionId);
  const isBuried = isDead || (await sessions.find(sessionId))?.isDead;
  if (!isBuried && head.c > 0 && !isHalfMade(head)) {
    const last = await lastOfFork(store, sessionId, head.c);
    if (last) await service.complete(last);
    return;
  }
  if (!(await sessions.bury(sessionId, tenantId))) return;
  if (!isDead) await forks.die(sessionId, Date.now());
  while (await store.removeSome(sessionId));
  if (isDead) await forks.remove(sessionId);
}

/** Runs may have followed it. */
async function lastOfFork(store: MongoCommitStore, sessionId: string, c: number) {
  for await (const document of store.range(sessionId, 1, c)) if (!isHalfMade(document.head)) return document;
  return undefined;
}
