import { isHalfMade, type CreateCommand } from '@margay/log';
import type { SessionLog } from '../commits/session-log';
import { eachOf, type Sweep } from '@margay/platform';
import type { ForkRepository } from '../sessions/fork.repository';
import type { TagRepository, TagRow } from '../sessions/tag.repository';

const EVERY_MS = 30_000;
const BATCH = 50;

export interface TagSweepPorts {
  log: Pick<SessionLog, 'submit' | 'confirmedTip'>;
  tags: TagRepository;
  forks: ForkRepository;
}

/** Half-made sessions: a tag whose commit 1 is missing gets it, by the command that it holds; or it is freed. */
export function tagSweep(ports: TagSweepPorts): Sweep {
  return {
    name: 'tags',
    everyMs: EVERY_MS,
    async sweep() {
      let repaired = 0;
      await eachOf(await ports.tags.halfMade(Date.now(), BATCH), async (row) => {
        // What can't be repaired now makes way for others.
        await ports.tags.postpone(row);
        if (await repairTag(ports, row)) repaired += 1;
      });
      return repaired;
    },
  };
}

/** @returns whether something was missing */
async function repairTag({ log, tags, forks }: TagSweepPorts, row: TagRow): Promise<boolean> {
  // A fork's plan goes only after the fork is stored: looked at in this order, one of them is seen.
  const fork = await forks.find(row.sessionId);
  const { head } = await log.confirmedTip(row.sessionId);
  if (head.c > 0 && !isHalfMade(head)) {
    await tags.settle(row);
    return row.isPending === true;
  }
  if (row.commandJson === '') {
    if (!fork || fork.isDead) await tags.free(row);
    return !fork;
  }
  const outcome = await log.submit(row.sessionId, JSON.parse(row.commandJson) as CreateCommand);
  // What is refused now, e.g. because it is too large, is refused for ever: no session of this tag can come into being.
  await (outcome.ok || outcome.rejection.reason === 'session_exists' ? tags.settle(row) : tags.free(row));
  return true;
}
