import type { CommitDocument } from '@margay/log';
import type { World } from '../world/world';

interface Completed {
  type: string;
  run_id?: string;
  payload: { failure_reason?: string };
}

/** A run that kills is parked, unless somebody ended it before; no other is. */
export function checkPoison(world: World, documents: CommitDocument[]): void {
  for (const { events } of documents)
    for (const { frame } of events) {
      if (!frame.includes('"type":"completion"')) continue;
      const { run_id: runId = '', payload } = JSON.parse(frame) as Completed;
      const isParked = payload.failure_reason === 'poison';
      if (isParked) world.count('run parked as poison');
      if (isParked && !world.plans.isKiller(runId)) world.fail('parked', `${runId} killed nobody`);
    }
}
