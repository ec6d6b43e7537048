import type { Command } from '@margay/log';
import { question } from '../clients/people';
import type { RpcResult } from '../clients/clients';
import type { Replica } from '../session/replica';
import { until } from './rest';
import type { Stage } from './stage';

/** Within this a journal tells its runner what another replica stored, without any message: a probe and some. */
const TELL_MS = 3_000;
/** Within this a replica answers when the store is up: longer than any fail-over. */
const ANSWER_MS = 6_000;
/** Longer than a closed stream may take to be opened elsewhere. */
const REATTACHED_MS = 4_000;
/** Longer than a lease. */
const AWAY_MS = 18_000;
/** Beats, the silence after which a runner stops by itself, and a margin. */
const FENCED_MS = 16_500;
const DRAINS = 3;
const MAIL_BEGUN_MS = 1_500;
/** An intent that is stored has led to its call. */
const SENT_MS = 20;
/** A fence is applied at once when nothing fails. */
const FENCED_SOON_MS = 500;
/** A lease, polls and a claim. */
const TAKEN_MS = 22_000;
/** Its model has been called, and has not answered yet. */
const BRIEF_BEGUN_MS = 1_500;

/** One after the other when all is calm, each for a rule whose breach the storm would hide. */
export type Scene = (stage: Stage) => Promise<void>;

/**
 * Two replicas insert the same number; the primary fails before a majority has the first one's commit, and that replica
 * dies. The other was told that the number is taken, by a commit that nobody will ever see.
 */
export const winnerDies: Scene = async ({ world, cast, sessionId }) => {
  const [winner, other] = cast.replicas as [Replica, Replica];
  const message = (commitId: string): Command => ({ kind: 'message', commitId, run: question(commitId) });
  const numberOf = (): number => world.store.headOf(sessionId)?.c ?? 0;
  world.store.failOverDuringInsert(1);
  void cast.clients.rpc(sessionId, message('winner'), winner);
  const before = numberOf();
  await until(world, 50, () => (numberOf() > before ? undefined : 'nothing inserted'), 0.1);
  const answer = ask(other, sessionId, message('other'));
  await until(world, 3_000, () => (world.store.isUp ? 'the store is up' : undefined), 1);
  winner.kill();
  const unmet = await until(world, ANSWER_MS, () => (answer.result ? undefined : 'no answer'));
  if (unmet !== undefined) world.fail('unanswered', `${other.name} does not answer after a fail-over`);
  winner.start();
};

/** With the broker silent, a journal's runner learns of a message and of a cancel that another replica stored. */
export const tellsWithoutMessages: Scene = async (stage) => {
  const { world, cast, sessionId } = stage;
  const life = await stage.startRun('slow');
  if (!life) return;
  const elsewhere = cast.replicas.find((replica) => replica !== life.link?.other);
  const before = life.inboxEnd;
  const tell = async (command: Command, isTold: () => boolean): Promise<void> => {
    void cast.clients.rpc(sessionId, command, elsewhere);
    const unmet = await until(world, TELL_MS, () => (isTold() ? undefined : `nothing of a ${command.kind}`));
    if (unmet !== undefined) world.fail('not told', `the runner knows ${unmet}`);
  };
  world.broker.isUp = false;
  await tell({ kind: 'message', commitId: 'word', run: question('a word') }, () => life.inboxEnd > before);
  await tell({ kind: 'cancel', commitId: 'cancel at last' }, () => life.isOver);
  world.broker.isUp = true;
};

/** A runner whose stream breaks and that opens another one keeps its run. */
export const reattaches: Scene = async (stage) => {
  const life = await stage.startRun('slow');
  if (!life) return;
  life.runner.cutAttachment();
  await stage.pass(REATTACHED_MS);
  if (life.isOver) stage.world.fail('taken from the living', `${life.runId} after a cut stream`);
  stage.cancel();
};

/** The store is away for longer than a lease; nobody is lost by that. */
export const storeGoesAway: Scene = async (stage) => {
  const { store } = stage.world;
  const life = await stage.startRun('slow');
  if (!life) return;
  store.isUp = false;
  await stage.pass(AWAY_MS);
  store.isUp = true;
  await stage.pass(REATTACHED_MS);
  if (life.isOver) stage.world.fail('taken from the living', `${life.runId} after an outage of the store`);
  stage.cancel();
};

/** A runner that reaches nobody stops by itself before others take its run for lost. */
export const runnerCutOff: Scene = async (stage) => {
  const life = await stage.startRun('slow');
  if (!life) return;
  life.runner.isCutOff = true;
  life.runner.cutAttachment();
  life.link?.close();
  await stage.pass(FENCED_MS);
  if (!life.isOver) stage.world.fail('not stopped', `${life.runId} goes on at a runner that reaches nobody`);
  life.runner.isCutOff = false;
  if (await stage.untilDriven(life.runId, life.epoch)) stage.cancel();
};

/** A run that is handed over again and again is no suspect. */
export const drainsOften: Scene = async (stage) => {
  let life = await stage.startRun('slow');
  for (let drains = 0; life && drains < DRAINS; drains++) {
    const { runId, epoch, runner } = life;
    runner.drain();
    life = await stage.untilDriven(runId, epoch);
  }
  stage.cancel();
};

/** A runner dies while a mail is being sent: the next owner waits for its outcome. */
export const mailOutlivesRunner: Scene = async (stage) => {
  const { world } = stage;
  const life = await stage.startRun('mail');
  if (!life) return;
  await stage.pass(MAIL_BEGUN_MS);
  life.runner.kill();
  world.time.at(100, () => life.runner.start());
  const isDone = (): boolean => world.store.headOf(stage.sessionId)?.lastRun?.id === life.runId;
  await until(world, 60_000, () => (isDone() ? undefined : 'the run is not done'));
  const results = world.store.documentsOf(stage.sessionId).flatMap(({ events }) => events);
  const isKnown = results.some(({ frame }) => frame.includes('"type":"tool_result"') && frame.includes(`"run_id":"${life.runId}"`) && frame.includes('"success":true')); // prettier-ignore
  if (!isKnown) world.fail('unknown to nobody', `the mail of ${life.runId} was sent, and its sender lives`);
};

/**
 * The final commit of a run lies at a replica that stands still. Sent again elsewhere it is refused for a message that
 * came meanwhile, and the run goes on; the copy must not end it.
 */
export const finishHasCopy: Scene = async (stage) => {
  const { world, cast, sessionId } = stage;
  const life = await stage.startRun('brief');
  const still = life?.link?.other;
  const other = cast.replicas.find((replica) => replica !== still);
  if (!life || !still) return;
  await stage.pass(BRIEF_BEGUN_MS);
  still.pause();
  void cast.clients.rpc(sessionId, { kind: 'message', commitId: 'word', run: question('a word') }, other);
  const isConsumed = (): boolean => {
    const head = world.store.headOf(sessionId);
    return !head?.run || (head.inboxEnd > 0 && head.run.consumedTo === head.inboxEnd && life.inboxEnd > 0);
  };
  await until(world, 30_000, () => (isConsumed() ? undefined : 'the message is unread'), 20);
  still.continue();
};

/** A call of a lost owner lies at an executor that stands still, and arrives when its sandbox is another one. */
export const callArrivesLate: Scene = async (stage) => {
  const { world, cast, sessionId } = stage;
  const life = await stage.startRun('call');
  if (!life) return;
  await stage.pass(BRIEF_BEGUN_MS);
  for (const executor of cast.executors) executor.pause();
  const seq = world.store.headOf(sessionId)?.seq ?? 0;
  const isIntended = (): boolean => (world.store.headOf(sessionId)?.seq ?? 0) > seq;
  await until(world, ANSWER_MS, () => (isIntended() ? undefined : 'no call is intended'), 20);
  await stage.pass(SENT_MS);
  for (const runner of cast.runners) runner.pause();
  // A stop of the storm before may end only now, and wake a runner.
  const isTaken = (): boolean => (world.store.headOf(sessionId)?.epoch ?? 0) > life.epoch;
  await until(world, TAKEN_MS, () => (isTaken() ? undefined : 'the run is not taken over'));
  await stage.pass(FENCED_SOON_MS);
  world.sandboxOf(sessionId).lose();
  for (const executor of cast.executors) executor.continue();
  await stage.pass(SENT_MS);
  for (const runner of cast.runners) runner.continue();
};

/**
 * A run was looked at with a head, and lies at a replica that stands still. Meanwhile somebody fences the session, to take
 * away where the run would work; it must not start behind that.
 */
export const fencedBeforeStart: Scene = async (stage) => {
  const { world, cast, sessionId } = stage;
  const [late, other] = cast.replicas as [Replica, Replica];
  const head = world.store.headOf(sessionId);
  if (!head || head.run) return;
  const { binding, epoch, runNo } = head;
  const run = { ...question('late question'), seen: { binding, epoch } };
  late.pause();
  void cast.clients.rpc(sessionId, { kind: 'accept', commitId: 'late', run }, late);
  const fence = ask(other, sessionId, { kind: 'fence', commitId: 'fence' });
  const unmet = await until(world, ANSWER_MS, () => (fence.result ? undefined : 'no fence'), 20);
  if (unmet !== undefined) world.fail('unanswered', `${other.name} fences no session`);
  late.continue();
  await stage.pass(ANSWER_MS);
  const isFenced =
    fence.result !== undefined && fence.result !== 'unanswered' && 'ok' in fence.result && fence.result.ok;
  if (isFenced && (world.store.headOf(sessionId)?.runNo ?? 0) > runNo)
    world.fail('started behind a fence', `${sessionId} r${runNo + 1}`);
};

/** No command is stuck in a replica's loop. */
export async function answers(stage: Stage, replica: Replica): Promise<void> {
  const sessionId = stage.sessionId || (stage.world.sessionIds[0] as string);
  const answer = ask(replica, sessionId, { kind: 'interrupt', commitId: `last of ${replica.name}` });
  const unmet = await until(stage.world, ANSWER_MS, () => (answer.result ? undefined : 'no answer'));
  if (unmet !== undefined) stage.world.fail('unanswered', `${replica.name} answers no more`);
}

/** Asks one replica once, however long it takes. */
function ask(replica: Replica, sessionId: string, command: Command): { result: RpcResult | undefined } {
  const answer: { result: RpcResult | undefined } = { result: undefined };
  replica.enter(replica.life, () => void replica.submit(sessionId, command).then((result) => (answer.result = result)));
  return answer;
}

export const SCENES: readonly Scene[] = [
  winnerDies,
  tellsWithoutMessages,
  reattaches,
  storeGoesAway,
  runnerCutOff,
  drainsOften,
  mailOutlivesRunner,
  finishHasCopy,
  callArrivesLate,
  fencedBeforeStart,
];
