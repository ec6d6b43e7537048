/** Every place at which a process can be made to fail on purpose, and what is true there. */
export const FAULT_POINT_NAMES = [
  /** A piece of the model's answer has come; more follow. Detail: session id, run id, all of it so far. */
  'runner.during-model-stream',
  /** The model's answer is whole, its commit A has not been sent. Detail: session id, run id, the events. */
  'runner.before-commit-a',
  /** A is stored, none of its calls has been sent. Detail: as before A. */
  'runner.after-commit-a',
  /** A call runs, its outcome has not come. Detail: session id, run id, the invocation. */
  'runner.during-call',
  /** Results of calls are here, their commit B has not been sent. Detail: session id, run id, the events. */
  'runner.before-commit-b',
  /** B is stored; the answer of the next model call has not been acted on. Detail: as before B. */
  'runner.after-commit-b',
  /** The last answer is whole, the final commit has not been sent. Detail: session id, run id, events, answer. */
  'runner.before-final-commit',
  /** The final commit is stored, the runner has not let go of the run. Detail: as before it. */
  'runner.after-final-commit',
  /** A commit is decided, its insert has not been sent. Detail: session id, ids of its commands, its events. */
  'session.before-insert',
  /** A commit is stored; nobody has been answered, nothing published. Detail: session id, ids of its commands, its events. */
  'session.after-insert',
  /** A commit is stored and its senders are being answered, it is not published. Detail: as before the insert. */
  'session.before-publish',
  /** A commit is stored, what it owes to other documents has not been written. Detail: as before the insert. */
  'session.before-effects',
  /** A claim is stored, its runner has not been told. Detail: session id, run id, runner. */
  'session.before-assign',
  /** An accepted run is stored, the caller has not been answered. Detail: session id, the query. */
  'session.before-accepted',
  /** The session service has accepted a run, the client has not got its 202. Detail: session id, the query. */
  'gateway.before-accepted',
  /** A call came in, the sandbox has not been asked. Detail: tool id, call id, arguments. */
  'executor.before-execute',
  /** The sandbox has answered that it runs the call. Detail: tool id, call id, arguments. */
  'executor.during-execute',
  /** The sandbox has told its result, the runner has not heard of it. Detail: tool id, call id, arguments. */
  'executor.after-execute',
  /** The record of a sandbox is stored, its pod does not exist. Detail: session id (none for the pool), sandbox id. */
  'sandbox.after-record',
  /** Its volume exists, its pod does not. Detail: as before. */
  'sandbox.after-volume',
  /** Its pod exists, the record does not know its UID. Detail: as before. */
  'sandbox.after-pod',
  /** A waiting sandbox belongs to the session by the store; it does not know, and neither does the cluster. Detail: as before. */
  'sandbox.after-bind',
  /** It has answered and its pod names the session; by the store it is not ready. Detail: as before. */
  'sandbox.before-ready',
  /** It is ready by the store, nobody has used it. Detail: as before. */
  'sandbox.after-ready',
  /** It is over by the store, its pod lives. Detail: as before. */
  'sandbox.before-delete',
  /** Its pod was told to go, the store calls it unfinished. Detail: as before. */
  'sandbox.after-delete',
  /** The sandbox has brought what its workspace begins with; by the store it has not. Detail: workspace key and id. */
  'workspace.after-content',
  /** By the store the workspace goes, and nothing runs there; its files are there. Detail: as before. */
  'workspace.before-files',
  /** Its files are gone, the store still names them. Detail: as before. */
  'workspace.after-files',
  /** A call is about to run; unless it is pure, the sandbox's journal says `started`. Detail: tool id, call id, arguments. */
  'sandboxd.before-run',
  /** The call has run, its result is not in the sandbox's journal. Detail: tool id, call id, arguments. */
  'sandboxd.before-result',
  /** The result is in the sandbox's journal, nobody has heard of it. Detail: tool id, call id, arguments. */
  'sandboxd.after-result',
] as const;

export type FaultPointName = (typeof FAULT_POINT_NAMES)[number];

const NAMES: ReadonlySet<string> = new Set(FAULT_POINT_NAMES);

export function isFaultPointName(name: string): name is FaultPointName {
  return NAMES.has(name);
}
