import type { LoopRules } from '@margay/log';

/** Rules of libs/log itself: switched off in the real code. The sections are those of docs/protocol.md. */
export const LOOP_RULES = {
  freshRejections: '§1.1 a command is refused only on a head read from the store after it came in',
  linearizableEnd: '§1.1 and only once a linearizable read found nothing behind that head',
  reinsertInvisible: '§1.2 a number that is named as taken but can not be seen is inserted again',
  findStored: '§1.3 commands already stored are looked for before they are decided again',
  copiesJoin: '§1.5 a second copy of a command in one batch waits for the first',
  deadlineBeforeSending: '§1.5 a deadline is looked at before the first insert is sent, never after',
  timesRise: '§1.7 times rise within a session whatever the clocks say',
  epochEquality: '§2 runner commands demand the present epoch',
  finishNeedsInbox: '§2 a run ends only when every inbox item has reached the model',
  waitingNeedsOpen: '§2 a run is left waiting only while nothing it waits for is decided',
  decisionRequeues: '§2 a decision puts the run that waits for it back into the queue',
  poisonParks: '§2 a run that kills its owners is parked in the end',
  startsAsSeen: '§2 a run that was looked at before a fence does not start',
  terminationIsFinal: '§2 nothing follows the end of a session',
} satisfies Record<keyof LoopRules, string>;

/** Rules of what surrounds the log: switched off in the simulated surroundings. */
export const HARNESS_RULES = {
  sameBytes: '§1.2 every retry of an insert sends the same bytes',
  majorityReads: '§1.4 no read shows a commit that a fail-over may still take back',
  uniqueCommitIds: '§1.3 the store holds each commit id of a session at most once',
  deltaFollows: '§8 a delta carries the time of the last stored event delivered before it',
  servedAsStored: '§1.8 live frames are the stored bytes',
  cutsSkipped: '§1.12 readers skip what a retry has cut',
  commitsNeverChange: '§1.10 a stored commit never changes, or its hash tells',
  cursorFromCommitBefore: '§8 a cursor by time starts at the last commit that began at or before it',
  readerUsesHeadOfRange: '§8 a reader takes position and state from the last commit of the range it read',
  projectionGuard: '§6 a projection is only ever replaced by that of a later commit',
  oneEpochOneLife: '§2 a runner refuses a (run, epoch) it ever held',
  takeover: '§2 a run whose runner is lost goes back to the queue',
  outageCountsForNobody: '§2 an outage of the store counts against no runner',
  generationGuard: '§2 a closed stream marks its runner lost only if none was opened since',
  missingFromBeats: '§2 a run missing from two beats of its runner goes back to the queue',
  selfFencing: '§2 a runner without an answer for 10 s stops its runs by itself',
  isolatesSuspects: '§2 a run that lost two owners is driven in a process of its own',
  drainsNeverCount: '§2 a planned hand-over is no loss',
  finishNamesInbox: '§2 a final commit names the inbox end that its model saw',
  pollQueue: '§3 each second a replica looks at the queue, whatever the broker said',
  openFromClaim: '§3 a journal opens only from a log whose last head shows exactly its run and epoch',
  watchJournal: '§3 a replica probes each session with an open journal every 2 s',
  sameIdOnResend: '§1.6 a command without an answer is sent again under its own id',
  storedBeforeActing: '§4 calls start once the commit that intends them is stored',
  callIdHoldsEpoch: '§4 a call id holds the epoch that fixed it',
  startedBeforeRun: '§4 the journal of a sandbox has a call as started before it runs',
  resultFromJournal: '§4 a call that has finished is answered from that journal',
  attachesToRunning: '§4 a call that runs is attached to, not started again',
  lowerEpochRefused: '§4 a sandbox refuses an epoch lower than the highest it has seen',
  incarnationInLog: '§4 a run commits to a sandbox before its first call there',
  otherIncarnationRefused: '§4 a sandbox refuses a call meant for another incarnation',
  fenceEffect: '§4 takeover and end fence the sandbox',
  recordKeepsEpoch: '§4 a new incarnation starts with the highest epoch of its record',
  restartIsUnknown: '§4 a call cut off by a restart of the daemon is unknown',
  doubtIsKept: '§4 a call that a lost sandbox may have run, or of which no answer came, is unknown in the next one',
  outsideGuard: '§4 a call outside a sandbox is noted as sent before it is',
  waitsWhileSenderBeats: '§4 a new owner waits while the process that sent a call beats',
  outsideUnknown: '§4 what a lost process sent without a key is unknown',
  effectsJanitor: '§6 effects that their writer did not apply are applied by a janitor',
  markClearedLast: '§6 the mark of a commit goes once its effects are applied',
  questionsExpire: '§6 a question that is limited in time ends by itself',
  gapsByCommit: '§8 a reader judges order and gaps by commit number',
  probe: '§8 a gateway probes quiet sessions every 2 s',
  endConfirmed: '§8 a stream ends only once the next commit is absent by a linearizable read',
  noLateDelta: '§8 no fragment of a step is served after its message',
} as const;

/** Rules of the protocol without a switch here, and why. */
export const NOT_SWITCHED: readonly (readonly [rule: string, why: string])[] = [
  ['§1.5 sizes of batches and queues', 'never reached here; commit-loop.spec.ts'],
  [
    '§1.9 blobs, the head below 8 KB',
    'the head is looked at after every commit; nothing is large here; offload.spec.ts',
  ],
  ['§1.11 the end is found by strides', 'a wrong bound costs reads, not safety; read-tip.spec.ts'],
  ['§1 versions', 'no time passes between versions here; golden files'],
  ['§2 state = running', 'every way out of it raises the epoch, which epochEquality asks for'],
  ['§2 a pair that the log does not show is revoked', 'its next commit is fenced all the same; runner-watch.spec.ts'],
  ['§2 runners without a replica are lost after 10 s', 'sooner than by the lease, not otherwise; runner-watch.spec.ts'],
  [
    '§3 fairness, caps, delays, queue positions',
    'an order, not a promise that breaks; fairness.spec.ts, dispatcher.spec.ts',
  ],
  ['§3 the broker may lose everything', 'a fault of every seed'],
  ['§4 two commits per step, groups of 30 ms', 'a cost, not a promise that breaks; run-agent.spec.ts'],
  ['§4 other arguments under an id are refused', 'callIdHoldsEpoch: nothing else reuses an id'],
  ['§5 each crash point', 'faults of every seed; each row has a named test of its own'],
  ['§6 tags, forks, blobs, rebuild', 'documents that this world does not have; logs.int-spec.ts, forks.int-spec.ts'],
  ['§6 jobs, notifications, §7 budgets', 'not built yet: nothing is simulated of them'],
  ['§8 subscribe before reading, bounded buffers', 'without it a frame comes with the next probe, not never'],
  ['§8 slow readers, formats, spread closing', 'there are no sockets here; stream.spec.ts'],
];

export const RULES: Record<Rule, string> = { ...LOOP_RULES, ...HARNESS_RULES };
export type Rule = keyof typeof LOOP_RULES | keyof typeof HARNESS_RULES;

export function isRule(name: string): name is Rule {
  return Object.hasOwn(RULES, name);
}

export function loopRules(off: ReadonlySet<Rule>): Partial<LoopRules> {
  const names = Object.keys(LOOP_RULES) as (keyof LoopRules)[];
  return Object.fromEntries(names.map((name) => [name, !off.has(name)]));
}
