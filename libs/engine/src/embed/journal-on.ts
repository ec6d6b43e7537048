import { CommitLoop, type BlobStore, type CommitDocument, type CommitStore } from '@margay/log';
import type { Clock, Ids } from '../ports';
import { EngineClock } from './engine-clock';

/** A durable log of sessions: commits, and where their large texts lie. */
export interface SessionLog {
  loop: CommitLoop;
  store: CommitStore;
  blobs: BlobStore;
}

/**
 * The session log on a store: ordering, fencing and exactly-once of docs/protocol.md §1–2 on a store's five methods.
 * @param options.onCommitted called once for each document stored through this log, before its sender is answered
 */
export function journalOn(
  store: CommitStore,
  options: { blobs: BlobStore; clock: Clock; ids: Ids; onCommitted?: (document: CommitDocument) => void },
): SessionLog {
  const { blobs, clock, ids, onCommitted } = options;
  const loop = new CommitLoop({
    store,
    clock: new EngineClock(clock, ids),
    ...(onCommitted ? { onCommitted } : {}),
  });
  return { loop, store, blobs };
}
