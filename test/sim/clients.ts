import type { Command, CommitOutcome } from '@margay/log';
import { createCommand, runRequest } from '@margay/testing';
import type { Replica } from './replica';
import { SimProcess } from './sim-process';
import type { World } from './world';

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
    const { random } = this.world;
    this.play(() => this.create());
    for (let index = 0; index < 2; index++) this.play(() => this.ask(index));
    this.play(() => this.message());
    this.play(() => this.repeatedly('interrupt', 3_000, 12_000));
    if (random.chance(0.5)) this.play(() => this.repeatedly('cancel', 3_000, 12_000));
    if (random.chance(0.12)) this.play(() => this.terminate());
  }

  private play(part: () => Promise<void>): void {
    this.playing++;
    this.spawn(async () => {
      await part();
      this.playing--;
    });
  }

  /** One request to one replica; the answer may never come. */
  rpc(command: Command, replica = this.world.random.pick(this.replicas), timeoutMs?: number): Promise<RpcResult> {
    const { world } = this;
    return new Promise((resolve) => {
      world.time.at(RPC_TIMEOUT_MS, () => resolve('unanswered'));
      const { life } = replica;
      world.carry(() =>
        replica.enter(life, () => {
          void replica.submit(command, timeoutMs).then((outcome) => world.carry(() => resolve(outcome)));
        }),
      );
    });
  }

  /** Repeats a command with its own commit id until there is an answer. */
  async insist(command: Command, times = 40): Promise<RpcResult> {
    for (let attempt = 1; ; attempt++) {
      const result = await this.rpc(command);
      const isKnown = result !== 'unanswered' && !('failed' in result);
      if (isKnown || attempt >= times) return result;
      await this.sleep(this.world.random.between(1, 300));
    }
  }

  /** Two attempts to create the session race, from one sender or from two. */
  private async create(): Promise<void> {
    const { world } = this;
    const create = (commitId: string): Command => createCommand({ commitId, context: { repo: 'here' } });
    const second = world.random.chance(0.5) ? 'create' : 'create again';
    await Promise.all([this.insist(create('create')), this.insist(create(second))]);
  }

  private async ask(index: number): Promise<void> {
    const { world } = this;
    const { random } = world;
    await this.sleep(random.between(5, 1_500));
    while (world.areFaultsOn) {
      const isKeyed = random.chance(0.6);
      const commitId = world.nextId(isKeyed ? 'key' : 'ask');
      const command: Command = { kind: 'accept', commitId, run: runRequest(`question ${commitId}`) };
      const replica = random.pick(this.replicas);
      const isHurried = random.chance(0.15);
      const result = isKeyed
        ? await this.insist(command)
        : await this.rpc(command, replica, isHurried ? random.between(0, 40) : undefined);
      if (result !== 'unanswered' && 'ok' in result && result.ok) await this.onAccepted(command, result.answer.run_id);
      await this.sleep(random.between(200, index === 0 ? 2_500 : 5_000));
    }
  }

  private async onAccepted(command: Command, runId: unknown): Promise<void> {
    const { world } = this;
    world.expectations.accepted(String(runId));
    if (command.kind !== 'accept' || !command.commitId.startsWith('key')) return;
    if (world.random.chance(0.2)) {
      await this.sleep(world.random.between(1, 3_000));
      const again = await this.insist(command);
      const isSame = again !== 'unanswered' && 'ok' in again && again.ok && again.answer.run_id === runId;
      if (!isSame && again !== 'unanswered' && !('failed' in again))
        world.fail('repeat', `${command.commitId} was accepted before, now ${JSON.stringify(again)}`);
    } else if (world.random.chance(0.1)) {
      const other = await this.insist({ ...command, run: { ...command.run, text: 'another text' } });
      const isRefused = other !== 'unanswered' && 'ok' in other && !other.ok;
      if (!isRefused || other.rejection.reason !== 'idempotency_key_reused')
        world.fail('key reused', `${command.commitId} with another body: ${JSON.stringify(other)}`);
    }
  }

  private async message(): Promise<void> {
    const { world } = this;
    while (world.areFaultsOn) {
      await this.sleep(world.random.between(300, 2_500));
      const isKeyed = world.random.chance(0.6);
      const commitId = world.nextId(isKeyed ? 'key' : 'message');
      const command: Command = { kind: 'message', commitId, run: runRequest(`message ${commitId}`) };
      if (isKeyed) await this.insist(command);
      else await this.rpc(command);
    }
  }

  private async repeatedly(kind: 'interrupt' | 'cancel', fromMs: number, toMs: number): Promise<void> {
    const { world } = this;
    while (world.areFaultsOn) {
      await this.sleep(world.random.between(fromMs, toMs));
      await this.rpc({ kind, commitId: world.nextId(kind) });
    }
  }

  private async terminate(): Promise<void> {
    const { world } = this;
    await this.sleep(world.random.between(6_000, 25_000));
    await this.insist({ kind: 'terminate', commitId: world.nextId('terminate'), cancelledTriggers: 2 });
  }
}
