import { isoMicros } from '@margay/contracts';
import { FailedPreconditionError } from '@margay/errors';
import { emptyHead, type CommitDocument, type Head, type StoredCommand, type StoredFrame } from '@margay/log';
import type { Binary } from 'mongodb';
import { blobsOf } from './blob-references';
import { eventText, headText, recordText } from './commit-words';

/**
 * A commit as MongoDB holds it: without what follows from the rest of it. `fromStored(toStored(commit))` is the commit,
 * byte for byte in its frames, so that its hash can be checked; whatever can't be derived exactly is kept whole.
 * Frames, records and head are shortened, see `Shorthand`.
 */
export interface StoredCommit {
  /** Ends with the commit's number. */
  _id: string;
  v: 1;
  tenantId: string;
  sessionId: string;
  commitIds: string[];
  /** SHA-256 of each command's body, in the order of `commitIds`; or the commands, where their ids are others. */
  commands: (Bytes | StoredCommand)[];
  /** JSON text of the commands' answers; absent where all are empty. */
  answers?: string;
  /** `type run payload`; a whole frame where it has another form. Absent where there are none. */
  events?: (string | StoredFrame)[];
  records?: string[];
  /** JSON text of those fields that differ from `knownHead`; open JSON, whose keys may hold dots and dollars. */
  head: string;
  effects?: CommitDocument['effects'];
  /** Milliseconds since the epoch; absent once the effects are applied. */
  effectsDueAt?: number;
  ts0: number;
  hash: Bytes;
  /** Blobs that its texts refer to, for who looks for references; absent where there are none. Follows from the texts. */
  blobs?: string[];
}

/** A SHA-256 as its 32 bytes; any other text as it is. */
type Bytes = Binary | Buffer | string;

/** The newest form of commits that is known here. */
export const COMMIT_VERSION = 1;

const SHA256_HEX = /^[0-9a-f]{64}$/;

export function toStored(document: CommitDocument): StoredCommit {
  const { _id, v, tenantId, sessionId, commitIds, commands, events, records, effects, effectsDueAt, ts0 } = document;
  const blobs = blobsOf(document);
  const hasAnswers = commands.some(({ answer }) => Object.keys(answer).length > 0);
  const isByIds = commands.length === commitIds.length && commands.every((each, i) => each.commitId === commitIds[i]);
  return {
    _id,
    v,
    tenantId,
    sessionId,
    commitIds,
    commands: isByIds ? commands.map(({ bodyHash }) => bytesOf(bodyHash)) : commands,
    ...(isByIds && hasAnswers ? { answers: JSON.stringify(commands.map(({ answer }) => answer)) } : {}),
    ...(events.length === 0 ? {} : { events: events.map((event, i) => packEvent(document, event, i)) }),
    ...(records.length === 0 ? {} : { records: records.map((record) => recordText.shorten(record, sessionId)) }),
    head: headText.shorten(packHead(document), sessionId),
    ...(effects.length === 0 ? {} : { effects }),
    ...(effectsDueAt === null ? {} : { effectsDueAt }),
    ts0,
    hash: bytesOf(document.hash),
    ...(blobs.length === 0 ? {} : { blobs }),
  };
}

/** @throws FailedPreconditionError `commit_version_unknown` where a newer Margay wrote it: that session is refused here */
export function fromStored(stored: StoredCommit): CommitDocument {
  refuseNewer(stored);
  const { _id, v, tenantId, sessionId, commitIds, events = [], records = [], effects = [], ts0 } = stored;
  const c = numberOf(_id);
  const known = knownHead({ tenantId, sessionId, c, ts0, events });
  const head: Head = { ...known, ...(JSON.parse(headText.expand(stored.head, sessionId)) as Partial<Head>) };
  const firstSeq = head.seq - events.length + 1;
  return {
    _id,
    v,
    tenantId,
    sessionId,
    c,
    commitIds,
    commands: unpackCommands(stored),
    events: events.map((event, i) => unpackEvent(event, sessionId, { seq: firstSeq + i, ts: ts0 + i })),
    records: records.map((record) => recordText.expand(record, sessionId)),
    head,
    effects,
    effectsDueAt: stored.effectsDueAt ?? null,
    ts0,
    hash: hexOf(stored.hash),
  };
}

function refuseNewer({ _id, v }: { _id: string; v: number }): void {
  if (v > COMMIT_VERSION)
    throw new FailedPreconditionError(
      'commit_version_unknown',
      `commit ${_id} has version ${v}, written by a newer Margay; this one knows versions up to ${COMMIT_VERSION}: upgrade it`,
    );
}

/** Number of the commit with this key. */
export function numberOf(key: string): number {
  return Number(key.slice(key.lastIndexOf('.') + 1));
}

function bytesOf(hash: string): Bytes {
  return SHA256_HEX.test(hash) ? Buffer.from(hash, 'hex') : hash;
}

function hexOf(bytes: Bytes): string {
  return typeof bytes === 'string' ? bytes : bytes.toString('hex');
}

function unpackCommands({ commitIds, commands, answers }: StoredCommit): StoredCommand[] {
  const answerOf = answers === undefined ? [] : (JSON.parse(answers) as StoredCommand['answer'][]);
  return commands.map((command, i): StoredCommand => {
    if (isWhole(command)) return command;
    return { commitId: commitIds[i] ?? '', bodyHash: hexOf(command), answer: answerOf[i] ?? {} };
  });
}

function isWhole(command: Bytes | StoredCommand): command is StoredCommand {
  return typeof command === 'object' && 'commitId' in command;
}

/** The head that a commit has at least: its ids, its number, its last time, and nothing else. */
function knownHead(commit: Pick<CommitDocument, 'tenantId' | 'sessionId' | 'c' | 'ts0'> & { events: unknown[] }): Head {
  const { tenantId, sessionId, c, ts0, events } = commit;
  return { ...emptyHead(sessionId), tenantId, c, ts: ts0 + Math.max(0, events.length - 1) };
}

function packHead(document: CommitDocument): string {
  const known = knownHead(document);
  const differs = ([key, value]: [string, unknown]): boolean => {
    const expected: unknown = known[key as keyof Head];
    if (value === null || typeof value !== 'object') return value !== expected;
    return JSON.stringify(value) !== JSON.stringify(expected);
  };
  return JSON.stringify(Object.fromEntries(Object.entries(document.head).filter(differs)));
}

/** Number and time follow from the commit's, so of a usual frame only type, run and payload are kept. */
function packEvent(
  { sessionId, head, events, ts0 }: CommitDocument,
  event: StoredFrame,
  index: number,
): string | StoredFrame {
  const { seq, ts, frame } = event;
  if (seq !== head.seq - events.length + 1 + index || ts !== ts0 + index) return event;
  const type = /"type":"(\w+)"/.exec(frame)?.[1] ?? '';
  const runId = /"run_id":"([^" \\]+)"\}$/.exec(frame)?.[1] ?? '';
  const [before, after] = around({ seq, ts }, type, runId);
  const payload = frame.slice(before.length, frame.length - after.length);
  const isUsual = frame === before + payload + after;
  return eventText.shorten(isUsual ? `${type} ${runId} ${payload}` : frame, sessionId);
}

function unpackEvent(event: string | StoredFrame, sessionId: string, place: { seq: number; ts: number }): StoredFrame {
  if (typeof event !== 'string') return event;
  const text = eventText.expand(event, sessionId);
  if (text.startsWith('{')) return { ...place, frame: text };
  const afterType = text.indexOf(' ');
  const afterRun = text.indexOf(' ', afterType + 1);
  const [before, after] = around(place, text.slice(0, afterType), text.slice(afterType + 1, afterRun));
  return { ...place, frame: before + text.slice(afterRun + 1) + after };
}

/** What stands before and after the payload in the frame of an event. */
function around({ seq, ts }: { seq: number; ts: number }, type: string, runId: string): [string, string] {
  const run = runId === '' ? '' : `,"run_id":"${runId}"`;
  return [`{"ts":"${isoMicros(ts)}","type":"${type}","payload":`, `,"seq":${seq}${run}}`];
}
