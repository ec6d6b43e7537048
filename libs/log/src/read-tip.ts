import { tipOf, type CommitDocument, type Tip } from './document';
import { emptyHead } from './head';
import type { CommitStore } from './store';

const STRIDE = 64;

/**
 * The newest commit that plain reads show, found by exact ids from a lower bound: doubling strides, then bisection.
 * It may lag behind the log's true end; `readConfirmedTip` tells.
 * @param known a commit to start from, instead of what the store names as a lower bound
 */
export async function readTip(store: CommitStore, sessionId: string, known?: CommitDocument): Promise<Tip> {
  let low = known ?? (await readLowerBound(store, sessionId));
  if (!low) return { head: emptyHead(sessionId), hash: '' };
  // Most often the bound is the end or close to it.
  const next = await store.readNumber(sessionId, low.c + 1);
  if (!next) return tipOf(low);
  low = next;
  let stride = STRIDE;
  let highC: number;
  for (;;) {
    const probe = await store.readNumber(sessionId, low.c + stride);
    if (!probe) {
      highC = low.c + stride;
      break;
    }
    low = probe;
    stride *= 2;
  }
  while (highC - low.c > 1) {
    const middle = low.c + Math.floor((highC - low.c) / 2);
    const probe = await store.readNumber(sessionId, middle);
    if (probe) low = probe;
    else highC = middle;
  }
  return tipOf(low);
}

/** The commit that the lower bound names; the first one where that is absent, e.g. after a fail-over. */
async function readLowerBound(store: CommitStore, sessionId: string): Promise<CommitDocument | undefined> {
  const bound = await store.lowerBound(sessionId);
  const named = bound > 0 ? await store.readNumber(sessionId, bound) : undefined;
  return named ?? (await store.readNumber(sessionId, 1));
}

/** The log's true end: a tip after which a linearizable read found no commit. */
export async function readConfirmedTip(store: CommitStore, sessionId: string): Promise<Tip> {
  let tip = await readTip(store, sessionId);
  for (;;) {
    const next = await store.readNumber(sessionId, tip.head.c + 1, { linearizable: true });
    if (!next) return tip;
    tip = tipOf(next);
  }
}
