import { setTimeout as sleep } from 'node:timers/promises';
import type { Principal, sessionsPb } from '@margay/contracts';
import { UnavailableError } from '@margay/errors';
import type { CommitDocument, Head } from '@margay/log';
import { requireAccess } from '../access/access-rules';
import type { SessionLog } from '../commits/session-log';
import { commitMessage, stateMessage } from './session.mapper';

const PAGE_COMMITS = 100;
const PAGE_BYTES = 512 * 1024;
/** How often a range that stopped short is read on without getting any further. */
const GAP_ATTEMPTS = 6;
const GAP_WAIT_MS = 20;

/**
 * The commits of a session from a cursor on, in order. One replay uses one head, for its end and its cuts; the last
 * message carries that head's state.
 */
export async function* replay(
  log: SessionLog,
  principal: Principal,
  request: sessionsPb.ReadCommitsRequest,
): AsyncIterable<sessionsPb.ReadCommitsResponse> {
  const { sessionId } = request;
  const { head } = await log.readTip(sessionId);
  requireAccess(principal, head);
  const isWanted = frameFilter(request);
  let commits: sessionsPb.Commit[] = [];
  let bytes = 0;
  for await (const document of commitsUpTo(log, head, await firstNumber(log, head, request))) {
    const { c, frames } = commitMessage(document, head.cuts);
    const wanted = frames.filter(isWanted);
    if (wanted.length === 0) continue;
    commits.push({ c, frames: wanted });
    bytes += wanted.reduce((sum, { json }) => sum + json.length, 0);
    if (commits.length < PAGE_COMMITS && bytes < PAGE_BYTES) continue;
    yield { commits, state: undefined };
    commits = [];
    bytes = 0;
  }
  yield { commits, state: stateMessage(head) };
}

/**
 * Every commit from a number up to the head's. Its end was seen, so all before it is stored: a range read while commits
 * are being written may stop short, and is read on. Whoever gets the state must have got everything before it.
 */
async function* commitsUpTo(log: SessionLog, { sessionId, c: end }: Head, from: number): AsyncIterable<CommitDocument> {
  let nextC = from;
  for (let attempt = 0; nextC <= end; attempt++) {
    if (attempt === GAP_ATTEMPTS)
      throw new UnavailableError('log_gap', `commit ${nextC} of session ${sessionId} could not be read; try again`);
    if (attempt > 0) await sleep(GAP_WAIT_MS);
    for await (const document of log.store.range(sessionId, nextC, end)) {
      nextC = document.c + 1;
      attempt = 0;
      yield document;
    }
  }
}

function frameFilter({ from }: sessionsPb.ReadCommitsRequest): (frame: sessionsPb.Frame) => boolean {
  if (from?.$case === 'atOrAfterTs') return ({ ts }) => ts >= from.value;
  if (from?.$case === 'afterSeq') return ({ seq }) => seq > from.value;
  return () => true;
}

async function firstNumber(log: SessionLog, head: Head, { from }: sessionsPb.ReadCommitsRequest): Promise<number> {
  if (from?.$case === 'afterCommit') return from.value + 1;
  if (from?.$case === 'atOrAfterTs') return Math.max(1, await log.store.findNumberByTs(head.sessionId, from.value));
  if (from?.$case === 'afterSeq') return firstAfterSeq(log, head, from.value);
  return 1;
}

/** Number of the first commit whose head lies beyond this seq, by bisection over exact ids. */
async function firstAfterSeq(log: SessionLog, head: Head, seq: number): Promise<number> {
  if (seq <= 0) return 1;
  if (seq >= head.seq) return head.c + 1;
  let low = 0;
  let high = head.c;
  while (high - low > 1) {
    const middle = low + Math.floor((high - low) / 2);
    const document = await log.store.readNumber(head.sessionId, middle);
    if (document && document.head.seq <= seq) low = middle;
    else high = middle;
  }
  return low + 1;
}
