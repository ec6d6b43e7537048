import type { Command } from '@margay/log';
import { question } from '../clients/people';
import type { Cast } from '../cast';
import type { RpcResult } from '../clients/clients';
import type { Replica } from '../session/replica';
import { logOf, REST_MS, rest, until } from './rest';
import type { RunLife } from '../runner/run-life';
import { Reader } from '../streams/reader';
import type { World } from '../world/world';

/** After this without faults no runner stops itself any more for heartbeats that were lost. */
const CALM_MS = 12_000;
/** Within this a journal tells its runner what another replica stored, without any message: a probe and some. */
const TELL_MS = 3_000;
/** Within this a replica answers when the store is up: longer than any fail-over. */
const ANSWER_MS = 6_000;

/** Scenes played one after the other when all is calm, each for a rule whose breach the storm would hide. */
export class Epilogue {
  /** A session that may still be used; empty if there is none. */
  private readonly sessionId: string;

  constructor(
    private readonly world: World,
    private readonly cast: Cast,
  ) {
    this.sessionId = world.sessionIds.find((id) => !logOf(world, id).at(-1)?.head.terminated) ?? '';
  }

  async play(): Promise<void> {
    if (this.sessionId !== '') {
      await this.pass(CALM_MS);
      await this.winnerDies();
      await this.tellWithoutMessages();
    }
    for (const replica of this.cast.replicas) await this.answers(replica);
    this.comeNew();
    await rest(this.world, this.cast);
  }

  /** Somebody who was never there reads all of each session. */
  private comeNew(): void {
    const { world, cast } = this;
    for (const sessionId of world.sessionIds) {
      const newcomer = new Reader(world, `new ${sessionId}`, sessionId, cast.gateways, 'seq', true);
      cast.readers.push(newcomer);
      newcomer.boot();
    }
  }

  private pass(ms: number): Promise<void> {
    return this.world.time.run(this.world.time.nowMs + ms, () => false);
  }

  /**
   * Two replicas insert the same number; the primary fails before a majority has the first one's commit, and that replica
   * dies. The other was told that the number is taken, by a commit that nobody will ever see.
   */
  private async winnerDies(): Promise<void> {
    const { world, cast } = this;
    const [winner, other] = cast.replicas as [Replica, Replica];
    const message = (commitId: string): Command => ({
      kind: 'message',
      commitId,
      run: question(commitId),
    });
    world.store.failOverDuringInsert(1);
    void cast.clients.rpc(this.sessionId, message('winner'), winner);
    const before = logOf(world, this.sessionId).length;
    await until(world, 50, () => (logOf(world, this.sessionId).length > before ? undefined : 'nothing inserted'), 0.1);
    const answer = this.ask(other, message('other'));
    await until(world, 3_000, () => (world.store.isUp ? 'the store is up' : undefined), 1);
    winner.kill();
    const unmet = await until(world, ANSWER_MS, () => (answer.result ? undefined : 'no answer'));
    if (unmet !== undefined) world.fail('unanswered', `${other.name} does not answer after a fail-over`);
    winner.start();
    await rest(world, cast);
  }

  /** With the broker silent, a journal's runner learns of a message and of a cancel that another replica stored. */
  private async tellWithoutMessages(): Promise<void> {
    const { world, cast } = this;
    const last = logOf(world, this.sessionId).at(-1)?.head;
    if (!last || last.run) return;
    const runId = `${this.sessionId}:r${last.runNo + 1}`;
    world.plans.slowRunId = runId;
    void cast.clients.rpc(this.sessionId, { kind: 'accept', commitId: 'slow', run: question('slow question') });
    const unmet = await until(world, REST_MS, () => (this.life(runId) ? undefined : `run ${runId} does not start`));
    if (unmet !== undefined) return world.fail('stuck', unmet);
    const served = this.life(runId)?.link?.other;
    const elsewhere = cast.replicas.find((replica) => replica !== served) as Replica;
    world.broker.isUp = false;
    const word: Command = { kind: 'message', commitId: 'word', run: question('a word') };
    await this.tell(elsewhere, word, () => (this.life(runId)?.inboxEnd ?? 0) > last.inboxEnd);
    await this.tell(elsewhere, { kind: 'cancel', commitId: 'cancel at last' }, () => !this.life(runId));
    world.broker.isUp = true;
    await rest(world, cast);
  }

  private life(runId: string): RunLife | undefined {
    const lives = this.cast.runners.flatMap((runner) => [...runner.lives.values()]);
    return lives.find((life) => life.runId === runId && life.link);
  }

  private async tell(replica: Replica, command: Command, isTold: () => boolean): Promise<void> {
    void this.cast.clients.rpc(this.sessionId, command, replica);
    const unmet = await until(this.world, TELL_MS, () => (isTold() ? undefined : `nothing of a ${command.kind}`));
    if (unmet !== undefined) this.world.fail('not told', `the runner knows ${unmet}`);
  }

  /** No command is stuck in a replica's loop. */
  private async answers(replica: Replica): Promise<void> {
    const answer = this.ask(replica, { kind: 'interrupt', commitId: `last of ${replica.name}` });
    const unmet = await until(this.world, ANSWER_MS, () => (answer.result ? undefined : 'no answer'));
    if (unmet !== undefined) this.world.fail('unanswered', `${replica.name} answers no more`);
  }

  /** Asks one replica once, however long it takes. */
  private ask(replica: Replica, command: Command): { result: RpcResult | undefined } {
    const answer: { result: RpcResult | undefined } = { result: undefined };
    replica.enter(
      replica.life,
      () =>
        void replica
          .submit(this.sessionId || (this.world.sessionIds[0] as string), command)
          .then((result) => (answer.result = result)),
    );
    return answer;
  }
}
