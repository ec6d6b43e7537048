import type { Command, CommitOutcome } from '@margay/log';
import { createCommand } from '@margay/testing';
import type { Replica } from '../session/replica';
import { SimProcess } from '../world/sim-process';
import type { World } from '../world/world';
import { People, question } from './people';

const RPC_TIMEOUT_MS = 2_500;

export type RpcResult = CommitOutcome | { failed: string } | 'unanswered';

/** People and programs that ask the session service for something. They are never at fault. */
export class Clients extends SimProcess {
  /** Parts that have not come to their end; they end once there are no more faults. */
  playing = 0;

  constructor(
    world: World,
    private readonly replicas: readonly Replica[],
  ) {
    super(world, 'clients');
  }

  boot(): void {
    for (const sessionId of this.world.sessionIds) this.use(sessionId);
  }

  private use(sessionId: string): void {
    const { random } = this.world;
    this.play(() => this.create(sessionId));
    for (let index = 0; index < 2; index++) this.play(() => this.ask(sessionId, index));
    this.play(() => this.message(sessionId));
    this.play(() => this.repeatedly(sessionId, 'interrupt', 3_000, 12_000));
    if (random.chance(0.5)) this.play(() => this.repeatedly(sessionId, 'cancel', 3_000, 12_000));
    if (random.chance(0.12)) this.play(() => this.terminate(sessionId));
    if (random.chance(0.4)) this.play(() => this.recover(sessionId));
    if (random.chance(0.3)) this.play(() => this.bind(sessionId));
    this.spawn(() => new People(this.world, this, sessionId).watch());
  }

  play(part: () => Promise<void>): void {
    this.playing++;
    this.spawn(async () => {
      await part();
      this.playing--;
    });
  }

  /** Sessions share what there is of load. */
  private get calm(): number {
    return this.world.sessionIds.length;
  }

  /** Some have a deadline that matters. */
  private drawTimeoutMs(): number | undefined {
    const { random } = this.world;
    return random.chance(0.4) ? random.between(0, random.pick([40, 400, 1_500])) : undefined;
  }

  /** One request to one replica; the answer may never come. */
  rpc(
    sessionId: string,
    command: Command,
    replica = this.world.random.pick(this.replicas),
    timeoutMs?: number,
  ): Promise<RpcResult> {
    const { world } = this;
    return new Promise((resolve) => {
      world.time.at(RPC_TIMEOUT_MS, () => resolve('unanswered'));
      const { life } = replica;
      world.carry(() =>
        replica.enter(life, () => {
          void replica.submit(sessionId, command, timeoutMs).then((outcome) => world.carry(() => resolve(outcome)));
        }),
      );
    });
  }

  /** Repeats a command with its own commit id until there is an answer. */
  async insist(sessionId: string, command: Command, times = 40): Promise<RpcResult> {
    for (let attempt = 1; ; attempt++) {
      const result = await this.rpc(sessionId, command);
      const isKnown = result !== 'unanswered' && !('failed' in result);
      if (isKnown || attempt >= times) return result;
      await this.sleep(this.world.random.between(1, 300));
    }
  }

  /** Two attempts to create the session race, from one sender or from two. */
  private async create(sessionId: string): Promise<void> {
    const { world } = this;
    const create = (commitId: string): Command =>
      createCommand({ commitId, tenantId: world.tenantOf(sessionId), context: { repo: 'here' } });
    const second = world.random.chance(0.5) ? 'create' : 'create again';
    await Promise.all([this.insist(sessionId, create('create')), this.insist(sessionId, create(second))]);
  }

  private async ask(sessionId: string, index: number): Promise<void> {
    const { world } = this;
    const { random } = world;
    await this.sleep(random.between(5, 1_500));
    while (world.areFaultsOn) {
      const isKeyed = random.chance(0.6);
      const commitId = world.nextId(isKeyed ? 'key' : 'ask');
      const command: Command = { kind: 'accept', commitId, run: question(`question ${commitId}`) };
      const replica = random.pick(this.replicas);
      const result = isKeyed
        ? await this.insist(sessionId, command)
        : await this.rpc(sessionId, command, replica, this.drawTimeoutMs());
      if (result !== 'unanswered' && 'ok' in result && result.ok)
        await this.onAccepted(sessionId, command, result.answer.run_id);
      await this.sleep(random.between(200, index === 0 ? 2_500 : 5_000) * this.calm);
    }
  }

  private async onAccepted(sessionId: string, command: Command, runId: unknown): Promise<void> {
    const { world } = this;
    world.expectations.accepted(sessionId, String(runId));
    if (command.kind !== 'accept' || !command.commitId.startsWith('key')) return;
    if (world.random.chance(0.2)) {
      await this.sleep(world.random.between(1, 3_000));
      const again = await this.insist(sessionId, command);
      const isSame = again !== 'unanswered' && 'ok' in again && again.ok && again.answer.run_id === runId;
      if (!isSame && again !== 'unanswered' && !('failed' in again))
        world.fail('repeat', `${command.commitId} was accepted before, now ${JSON.stringify(again)}`);
    } else if (world.random.chance(0.1)) {
      const other = await this.insist(sessionId, { ...command, run: { ...command.run, text: 'another text' } });
      const isRefused = other !== 'unanswered' && 'ok' in other && !other.ok;
      if (!isRefused || other.rejection.reason !== 'idempotency_key_reused')
        world.fail('key reused', `${command.commitId} with another body: ${JSON.stringify(other)}`);
    }
  }

  private async message(sessionId: string): Promise<void> {
    const { world } = this;
    while (world.areFaultsOn) {
      await this.sleep(world.random.between(300, 2_500) * this.calm);
      const isKeyed = world.random.chance(0.6);
      const commitId = world.nextId(isKeyed ? 'key' : 'message');
      const command: Command = { kind: 'message', commitId, run: question(`message ${commitId}`) };
      if (isKeyed) await this.insist(sessionId, command);
      else await this.rpc(sessionId, command, undefined, this.drawTimeoutMs());
    }
  }

  private async repeatedly(
    sessionId: string,
    kind: 'interrupt' | 'cancel',
    fromMs: number,
    toMs: number,
  ): Promise<void> {
    const { world } = this;
    while (world.areFaultsOn) {
      await this.sleep(world.random.between(fromMs, toMs));
      await this.rpc(sessionId, { kind, commitId: world.nextId(kind) }, undefined, this.drawTimeoutMs());
    }
  }

  /** Somebody changes his mind about where the session works, also while it does. */
  private async bind(sessionId: string): Promise<void> {
    const { world } = this;
    while (world.areFaultsOn) {
      await this.sleep(world.random.between(1_000, 8_000));
      const project = world.random.pick([null, 'shop', 'lab']);
      const command: Command = { kind: 'bind', commitId: world.nextId('bind'), binding: { project, cwd: null }, context: { project } }; // prettier-ignore
      await this.insist(sessionId, command);
    }
  }

  /** The turn under somebody's eyes is run again, or gone on with. */
  private async recover(sessionId: string): Promise<void> {
    const { world } = this;
    while (world.areFaultsOn) {
      await this.sleep(world.random.between(1_500, 6_000));
      const commitId = world.nextId('recover');
      const from = lastTurn(world, sessionId);
      if (!from) continue;
      const run = question(`again ${commitId}`);
      const action = world.random.chance(0.7) ? 'retry' : 'continue';
      await this.insist(sessionId, { kind: 'recover', commitId, action, ...(action === 'retry' ? { from } : {}), run });
    }
  }

  private async terminate(sessionId: string): Promise<void> {
    const { world } = this;
    await this.sleep(world.random.between(6_000, 25_000));
    await this.insist(sessionId, { kind: 'terminate', commitId: world.nextId('terminate'), cancelledTriggers: 2 });
  }
}

/** Where the last turn begins. */
function lastTurn(world: World, sessionId: string): { seq: number; ts: number; runId: string } | undefined {
  const head = world.store.headOf(sessionId);
  if (!head?.lastRun || head.run) return undefined;
  const runId = head.lastRun.id;
  const frames = world.store.documentsOf(sessionId).flatMap(({ events }) => events);
  const asked = frames.find(({ frame }) => frame.includes('"type":"user"') && frame.includes(`"run_id":"${runId}"`));
  return asked && { seq: asked.seq, ts: asked.ts, runId };
}
