import { setTimeout as sleep } from 'node:timers/promises';
import type { Principal, sessionsPb } from '@margay/contracts';
import { UnavailableError } from '@margay/errors';
import type { CommitDocument, Head } from '@margay/log';
import { requireAccess } from '../access/access-rules';
import type { SessionLog } from '../commits/session-log';
import type { QueuePositions } from '../dispatch/queue-positions';
import { commitMessage, stateMessage } from './session.mapper';

type Request = sessionsPb.ReadCommitsRequest;
type Commit = sessionsPb.Commit;

const PAGE_COMMITS = 100;
const PAGE_BYTES = 512 * 1024;
/** So many commits are read at once when the last events of a range are sought. */
const WINDOW = { least: 16, spare: 8, most: 128 };
/** How often a range that stopped short is read on without getting any further. */
const GAP_ATTEMPTS = 6;
const GAP_WAIT_MS = 20;

/** Numbers of commits, both inclusive. */
interface Range {
  from: number;
  to: number;
}

/**
 * The commits of a session from a cursor on, in order. One replay uses one head, for its end and its cuts; the last
 * message carries that head's state.
 */
export async function* replay(
  log: SessionLog,
  principal: Principal,
  request: Request,
  positions?: Pick<QueuePositions, 'ofHead'>,
): AsyncIterable<sessionsPb.ReadCommitsResponse> {
  const { head } = await log.readTip(request.sessionId);
  requireAccess(principal, head);
  const range = { from: await firstNumber(log, head, request), to: await lastNumber(log, head, request) };
  const source = { log, head, isWanted: frameFilter(request) };
  let commits: Commit[] = [];
  let bytes = 0;
  for await (const commit of selected(source, range, request)) {
    commits.push(commit);
    bytes += commit.frames.reduce((sum, { json }) => sum + json.length, 0);
    if (commits.length < PAGE_COMMITS && bytes < PAGE_BYTES) continue;
    yield { commits, state: undefined };
    commits = [];
    bytes = 0;
  }
  yield { commits, state: stateMessage(head, await positions?.ofHead(head)) };
}

interface Source {
  log: SessionLog;
  head: Head;
  isWanted: (frame: sessionsPb.Frame) => boolean;
}

function selected(source: Source, range: Range, { first, last }: Request): AsyncIterable<Commit> | Iterable<Commit> {
  if (last > 0) return lastCommits(source, range, last);
  return first > 0 ? firstCommits(source, range, first) : wantedCommits(source, range);
}

/** Commits with what is wanted of their frames; those without any are left out. */
async function* wantedCommits({ log, head, isWanted }: Source, range: Range): AsyncIterable<Commit> {
  for await (const document of commitsOf(log, head.sessionId, range)) {
    const { c, frames } = commitMessage(document, head.cuts);
    const wanted = frames.filter(isWanted);
    if (wanted.length > 0) yield { c, frames: wanted };
  }
}

async function* firstCommits(source: Source, range: Range, count: number): AsyncIterable<Commit> {
  let missing = count;
  for await (const { c, frames } of wantedCommits(source, range)) {
    yield { c, frames: frames.slice(0, missing) };
    missing -= frames.length;
    if (missing <= 0) return;
  }
}

/** Read backwards in windows, so that the length of the log before them costs nothing. */
async function* lastCommits(source: Source, { from, to }: Range, count: number): AsyncIterable<Commit> {
  const windows: Commit[][] = [];
  let missing = count;
  const commitsPerEvent = source.head.c / source.head.seq;
  for (let end = to; end >= from && missing > 0;) {
    const size = Math.min(WINDOW.most, Math.max(WINDOW.least, Math.ceil(missing * commitsPerEvent) + WINDOW.spare));
    const start = Math.max(from, end - size + 1);
    const window: Commit[] = [];
    for await (const commit of wantedCommits(source, { from: start, to: end })) window.push(commit);
    missing -= window.reduce((sum, { frames }) => sum + frames.length, 0);
    windows.push(window);
    end = start - 1;
  }
  let surplus = Math.max(0, -missing);
  for (const { c, frames } of windows.reverse().flat()) {
    const kept = frames.slice(surplus);
    surplus = Math.max(0, surplus - frames.length);
    if (kept.length > 0) yield { c, frames: kept };
  }
}

/**
 * Every commit of a range. Its end was seen, so all before it is stored: a range read while commits are being written may
 * stop short, and is read on. Whoever gets the state must have got everything before it.
 */
async function* commitsOf(log: SessionLog, sessionId: string, { from, to }: Range): AsyncIterable<CommitDocument> {
  let nextC = from;
  for (let attempt = 0; nextC <= to; attempt++) {
    if (attempt === GAP_ATTEMPTS)
      throw new UnavailableError('log_gap', `commit ${nextC} of session ${sessionId} could not be read; try again`);
    if (attempt > 0) await sleep(GAP_WAIT_MS);
    for await (const document of log.store.range(sessionId, nextC, to)) {
      nextC = document.c + 1;
      attempt = 0;
      yield document;
    }
  }
}

function frameFilter({ from, beforeTs }: Request): (frame: sessionsPb.Frame) => boolean {
  const endTs = beforeTs === 0 ? Infinity : beforeTs;
  if (from?.$case === 'atOrAfterTs') return ({ ts }) => ts >= from.value && ts < endTs;
  if (from?.$case === 'afterSeq') return ({ seq, ts }) => seq > from.value && ts < endTs;
  return ({ ts }) => ts < endTs;
}

async function firstNumber(log: SessionLog, head: Head, { from }: Request): Promise<number> {
  if (from?.$case === 'afterCommit') return from.value + 1;
  if (from?.$case === 'atOrAfterTs') return Math.max(1, await log.store.findNumberByTs(head.sessionId, from.value));
  if (from?.$case === 'afterSeq') return firstAfterSeq(log, head, from.value);
  return 1;
}

/** Number of the last commit that began before the time given, or of the head. */
async function lastNumber(log: SessionLog, { sessionId, c, ts }: Head, { beforeTs }: Request): Promise<number> {
  if (beforeTs === 0 || beforeTs > ts) return c;
  return Math.min(c, await log.store.findNumberByTs(sessionId, beforeTs - 1));
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
