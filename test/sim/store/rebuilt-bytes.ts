import { hashOf, type CommitDocument, commitKey } from '@margay/log';
import type { SimStore } from './sim-store';

/** The same commit as it looks when a retry builds it anew, with the time of the retry. */
export function rebuiltBytes(document: CommitDocument, store: SimStore): CommitDocument {
  const laterBy = 1;
  const events = document.events.map(({ seq, ts, frame }) => ({
    seq,
    ts: ts + laterBy,
    frame: JSON.stringify({ ...(JSON.parse(frame) as object), ts: `rebuilt at ${ts + laterBy}` }),
  }));
  const previous = store.entries.get(commitKey(document.sessionId, document.c - 1));
  const rebuilt = {
    ...document,
    events,
    ts0: document.ts0 + laterBy,
    head: { ...document.head, ts: document.head.ts + laterBy },
  };
  return { ...rebuilt, hash: hashOf(previous?.document.hash ?? '', rebuilt) };
}
