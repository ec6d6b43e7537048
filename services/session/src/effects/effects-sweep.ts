import type { CommitDocument } from '@margay/log';
import type { MongoCommitStore } from '../commits/mongo-commit-store';
import type { Sweep } from '@margay/platform';
import type { EffectsService } from './effects.service';

const EVERY_MS = 1_000;
/** A mark is due 1.5 s after its commit was built; the sweep waits half a second longer. */
const SLACK_MS = 500;
const BATCH = 100;
/** What can't be applied now, e.g. while a service is down, makes way for others so long. */
const POSTPONED_MS = 10_000;

export interface EffectsSweepPorts {
  store: Pick<MongoCommitStore, 'overdue' | 'postponeEffects'>;
  effects: EffectsService;
  /** How long the oldest effect that was found has been due; 0 if none is overdue. */
  onLag: (seconds: number) => void;
}

/** Redoes effects that their writer did not finish. */
export function effectsSweep({ store, effects, onLag }: EffectsSweepPorts): Sweep {
  const redo = async (document: CommitDocument): Promise<boolean> => {
    if (await effects.apply(document)) return true;
    await store.postponeEffects(document._id, Date.now() + POSTPONED_MS);
    return false;
  };
  return {
    name: 'effects',
    everyMs: EVERY_MS,
    async sweep() {
      const nowMs = Date.now();
      const overdue = await store.overdue(nowMs - SLACK_MS, BATCH);
      const oldestTs = Math.min(nowMs * 1_000, ...overdue.map(({ ts0 }) => ts0));
      onLag(nowMs / 1_000 - oldestTs / 1_000_000);
      const applied = await Promise.all(overdue.map(redo));
      return applied.filter(Boolean).length;
    },
  };
}
