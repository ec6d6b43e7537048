import type { LoopRules } from '@margay/log';

/** Rules of libs/log itself: switched off in the real code. */
export const LOOP_RULES = {
  freshRejections: 'a command is refused only on a head read from the store after it came in',
  linearizableEnd: 'and only once a linearizable read found nothing behind that head',
  reinsertInvisible: 'a number that is named as taken but can not be seen is inserted again',
  findStored: 'commands already stored are looked for before they are decided again',
  epochEquality: 'runner commands demand the present epoch',
  finishNeedsInbox: 'a run ends only when every inbox item has reached the model',
  waitingNeedsOpen: 'a run is left waiting only while nothing it waits for is decided',
  decisionRequeues: 'a decision puts the run that waits for it back into the queue',
  poisonParks: 'a run that kills its owners is parked in the end',
} satisfies Record<keyof LoopRules, string>;

/** Rules of what surrounds the log: switched off in the simulated surroundings. */
export const HARNESS_RULES = {
  sameBytes: 'every retry of an insert sends the same bytes',
  uniqueCommitIds: 'the store holds each commit id of a session at most once',
  majorityReads: 'no read shows a commit that a fail-over may still take back',
  projectionGuard: 'a projection is only ever replaced by that of a later commit',
  effectsJanitor: 'effects that their writer did not apply are applied by a janitor',
  takeover: 'a run whose runner is lost goes back to the queue',
  missingFromBeats: 'a run missing from two beats of its runner goes back to the queue',
  oneEpochOneLife: 'a runner refuses a (run, epoch) it ever held',
  openFromClaim: 'a journal opens only from a log whose last head shows exactly its run and epoch',
  watchJournal: 'a replica probes each session with an open journal every 2 s',
  readerUsesHeadOfRange: 'a reader takes position and state from the last commit of the range it read',
  gapsByCommit: 'a reader judges order and gaps by commit number',
  probe: 'a gateway probes quiet sessions every 2 s',
  endConfirmed: 'a stream ends only once the next commit is absent by a linearizable read',
  deltaFollows: 'a delta carries the time of the last stored event delivered before it',
  sameIdOnResend: 'a command without an answer is sent again under its own id',
  storedBeforeActing: 'calls start once the commit that intends them is stored',
  finishNamesInbox: 'a final commit names the inbox end that its model saw',
  callIdHoldsEpoch: 'a call id holds the epoch that fixed it',
  incarnationInLog: 'a run commits to a sandbox before its first call there',
  lowerEpochRefused: 'a sandbox refuses an epoch lower than the highest it has seen',
  otherIncarnationRefused: 'a sandbox refuses a call meant for another incarnation',
  recordKeepsEpoch: 'a new incarnation starts with the highest epoch of its record',
  fenceEffect: 'takeover and end fence the sandbox',
  attachesToRunning: 'a call that runs is attached to, not started again',
  resultFromJournal: 'a call that has finished is answered from the journal',
  startedBeforeRun: 'the journal has a call as started before it runs',
  restartIsUnknown: 'a call cut off by a restart of the daemon is unknown',
  executorKeepsDoubt: 'a call that a lost sandbox may have run is unknown in the next one',
  runnerKeepsDoubt: 'so is one whose answer got lost on the way to the runner',
  outsideGuard: 'a call outside a sandbox is noted as sent before it is',
  waitsWhileSenderBeats: 'a new owner waits while the process that sent a call beats',
  questionsExpire: 'a question that is limited in time ends by itself',
  cutsSkipped: 'readers skip what a retry has cut',
  outsideUnknown: 'what a lost process sent without a key is unknown',
} as const;

export const RULES: Record<Rule, string> = { ...LOOP_RULES, ...HARNESS_RULES };
export type Rule = keyof typeof LOOP_RULES | keyof typeof HARNESS_RULES;

export function isRule(name: string): name is Rule {
  return Object.hasOwn(RULES, name);
}

export function loopRules(off: ReadonlySet<Rule>): Partial<LoopRules> {
  const names = Object.keys(LOOP_RULES) as (keyof LoopRules)[];
  return Object.fromEntries(names.map((name) => [name, !off.has(name)]));
}
