import { isHalfMade, type CreateCommand } from '@margay/log';
import type { MongoBlobStore } from '../commits/mongo-blob-store';
import type { MongoCommitStore } from '../commits/mongo-commit-store';
import type { SessionLog } from '../commits/session-log';
import { eachOf, type Sweep } from '../leases/leased-sweep';
import type { ForkRepository } from '../sessions/fork.repository';
import type { TagRepository, TagRow } from '../sessions/tag.repository';

const MINUTE_MS = 60_000;
const BATCH = 50;
/** A collection of blobs begins when whoever was stopped by an outage has had time to store what refers to one. */
const BLOBS_SETTLE_MS = 10 * MINUTE_MS;

export interface TagSweepPorts {
  log: Pick<SessionLog, 'submit' | 'readTip'>;
  tags: TagRepository;
  forks: ForkRepository;
}

/** Half-made sessions: a tag whose commit 1 is missing gets it, by the command that it holds; or it is freed. */
export function tagSweep(ports: TagSweepPorts): Sweep {
  return {
    name: 'tags',
    everyMs: MINUTE_MS / 2,
    async sweep() {
      let repaired = 0;
      await eachOf(await ports.tags.halfMade(Date.now(), BATCH), async (row) => {
        if (await repairTag(ports, row)) repaired += 1;
      });
      return repaired;
    },
  };
}

/** @returns whether something was missing */
async function repairTag({ log, tags, forks }: TagSweepPorts, row: TagRow): Promise<boolean> {
  const { head } = await log.readTip(row.sessionId);
  if (head.c > 0 && !isHalfMade(head)) {
    await tags.settle(row);
    return row.isPending === true;
  }
  if (row.commandJson === '') {
    const fork = await forks.find(row.sessionId);
    await (fork && !fork.isDead ? tags.postpone(row) : tags.free(row));
    return !fork;
  }
  const outcome = await log.submit(row.sessionId, JSON.parse(row.commandJson) as CreateCommand);
  // What is refused now, e.g. because it is too large, is refused for ever: no session of this tag can come into being.
  await (outcome.ok || outcome.rejection.reason === 'session_exists' ? tags.settle(row) : tags.free(row));
  return true;
}

export interface BlobSweepPorts {
  blobs: MongoBlobStore;
  store: MongoCommitStore;
}

/** Blobs that no commit refers to, and what is left of uploads that broke off. */
export function blobSweep({ blobs, store }: BlobSweepPorts): Sweep {
  return {
    name: 'blobs',
    everyMs: MINUTE_MS,
    settleMs: BLOBS_SETTLE_MS,
    async sweep() {
      const unused = await blobs.collect((tenantId, id) => store.refersTo(tenantId, id), BATCH);
      return unused + (await blobs.collectBroken(BATCH));
    },
  };
}
