import type { CommitDocument } from '@margay/log';
import { faultPoint, type FaultPointName } from '@margay/platform';

/** A fault point on the way of a commit; its ids and events are what a plan may look for. */
export function commitFault(point: FaultPointName, document: CommitDocument): Promise<void> | undefined {
  return faultPoint(point, () => describeCommit(document));
}

/** What follows from a commit: at once, unless a fault holds it up or keeps it from happening. */
export function passingFault(point: FaultPointName, document: CommitDocument, follow: () => void): void {
  const held = commitFault(point, document);
  if (held) void held.then(follow);
  else follow();
}

function describeCommit({ sessionId, commitIds, events }: CommitDocument): string {
  return [sessionId, ...commitIds, ...events.map(({ frame }) => frame)].join(' ');
}
