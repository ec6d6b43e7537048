/** Completion of the last run, as far as states and lists need it. */
export interface LastRun {
  id: string;
  /** Microseconds since the epoch. */
  acceptedTs?: number;
  done: boolean;
  doneReason: string;
  blockedCode?: string;
  verified?: boolean;
  failureReason?: string;
  modelsTried?: string[];
}

export interface HeadRun {
  /** `<sessionId>:r<no>`. */
  id: string;
  no: number;
  state: 'queued' | 'running' | 'waiting';
  /** Runner instance that drives it. */
  owner: string | null;
  pool: string;
  /** Microseconds since the epoch at which it was accepted. */
  acceptedTs: number;
  /** Who started it: budgets, memories and credentials are theirs. */
  principal: string;
  /** Inbox items up to this number have reached the model. */
  consumedTo: number;
  /** W3C trace context of the request that started it. */
  traceparent?: string;
  /** Of its sandbox; absent = the usual one. It keeps that of its acceptance, whoever goes on with it. */
  sandboxClass?: string;
  /** The present owner has stored something. */
  hasProgress?: true;
  /** Where it works, if the session was bound to something else since it was accepted. */
  binding?: { project: string | null; cwd: string | null };
  /** Nobody has driven it since it waited: its calls without a result were never sent. */
  isWoken?: true;
  /** What a run in state `waiting` waits for. */
  waiting?: Waiting;
  /** Owners that were lost; planned hand-overs don't count. */
  losses?: { suspicious: number; lastTs: number };
  /** It killed its owners, as it seems: it is driven in a process of its own. */
  isolated?: true;
}

/** Why a run holds no runner: no agent of it can proceed before one of these is decided. */
export interface Waiting {
  kind: 'question';
  /** Ids of what it waits for. */
  for: string[];
  /** Microseconds since the epoch. */
  since: number;
}

/** A question to a person. */
export interface HeadQuestion {
  callId: string;
  /** Time of its `user_question` event, which finds it; microseconds since the epoch. */
  ts: number;
  /** From then on it is timed out; null = never. */
  expiresTs: number | null;
}

/**
 * State of a session after a commit: all that decides about the next command. At most 8 KB.
 * `head` of commit c+1 is `decide(head of c, commands)`.
 */
export interface Head {
  v: 1;
  tenantId: string;
  sessionId: string;
  /** Number of the commit this is the state after; 0 = the session does not exist. */
  c: number;
  /** Number of the last public event. */
  seq: number;
  /** Last allocated time, microseconds; strictly increasing whatever the clocks. */
  ts: number;
  createdTs: number;
  /** Principal that created the session. */
  owner: string;
  tag: string | null;
  title: string | null;
  /** Number of the run whose text gave the title; absent: nobody's did. */
  titleRunNo?: number;
  /** All `context` payloads merged, later wins. */
  context: Record<string, unknown>;
  /** Where the workspace comes from: the first project or folder named, until somebody binds the session anew. */
  binding: { project: string | null; cwd: string | null };
  /** Raised by accept, claim, takeover, release, end and termination; belongs to the session. */
  epoch: number;
  /** Runs accepted so far. */
  runNo: number;
  run: HeadRun | null;
  lastRun: LastRun | null;
  /** Number of the newest inbox item. */
  inboxEnd: number;
  /** Number of the newest inbox item that a person said; absent = none yet. */
  saidEnd?: number;
  /** Sandbox the current run committed to. */
  sandbox: { incarnation: string } | null;
  terminated: { ts: number; cancelledTriggers: number } | null;
  /** Ranges of seq that readers skip, ascending and disjoint. */
  cuts: [from: number, to: number][];
  /** Projects that the session was bound to before, the newest last; absent = none. */
  formerProjects?: string[];
  /** Questions that the run waits for; absent = none. */
  questions?: HeadQuestion[];
  /** The last questions that ended without an answer, as many as fit: one that comes late opens a new turn. */
  unanswered?: HeadQuestion[];
}

export const HEAD_MAX_BYTES = 8 * 1024;
/** Ranges of cut events; a retry beyond them is refused. */
export const CUTS_MAX = 128;
export const OPEN_QUESTIONS_MAX = 8;
/** Call ids that the log writes are shorter. */
export const CALL_ID_MAX_CHARS = 64;
export const UNANSWERED_MAX = 16;

export function emptyHead(sessionId: string): Head {
  return {
    v: 1,
    tenantId: '',
    sessionId,
    c: 0,
    seq: 0,
    ts: 0,
    createdTs: 0,
    owner: '',
    tag: null,
    title: null,
    context: {},
    binding: { project: null, cwd: null },
    epoch: 0,
    runNo: 0,
    run: null,
    lastRun: null,
    inboxEnd: 0,
    sandbox: null,
    terminated: null,
    cuts: [],
  };
}
