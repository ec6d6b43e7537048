import type { StoredEvent } from '@margay/contracts';
import type { CommitDocument, CommitStore } from '@margay/log';

/** The stored event with exactly this time, microseconds since the epoch; undefined if there is none. */
export async function readEvent(store: CommitStore, sessionId: string, ts: number): Promise<StoredEvent | undefined> {
  const document = await readCommitAt(store, sessionId, ts);
  const found = document?.events.find((event) => event.ts === ts);
  return found && (JSON.parse(found.frame) as StoredEvent);
}

/** The commit that holds the event with this time, if there is one. */
export async function readCommitAt(
  store: CommitStore,
  sessionId: string,
  ts: number,
): Promise<CommitDocument | undefined> {
  const c = await store.findNumberByTs(sessionId, ts);
  return c > 0 ? store.readNumber(sessionId, c) : undefined;
}
