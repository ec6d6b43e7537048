/** Completion of the last run, as far as states and lists need it. */
export interface LastRun {
  id: string;
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
  /** All `context` payloads merged, later wins. */
  context: Record<string, unknown>;
  /** Where the workspace comes from; fixed by the first project or folder named. */
  binding: { project: string | null; cwd: string | null };
  /** Raised by accept, claim, takeover, release, end and termination; belongs to the session. */
  epoch: number;
  /** Runs accepted so far. */
  runNo: number;
  run: HeadRun | null;
  lastRun: LastRun | null;
  /** Number of the newest inbox item. */
  inboxEnd: number;
  /** Sandbox the current run committed to. */
  sandbox: { incarnation: string } | null;
  terminated: { ts: number; cancelledTriggers: number } | null;
  /** Ranges of seq that readers skip, ascending and disjoint. */
  cuts: [from: number, to: number][];
}

export const HEAD_MAX_BYTES = 8 * 1024;

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
