import { ToolDescriptor, type EffectClass, type RunGrant } from '@margay/contracts';
import { UnavailableError } from '@margay/errors';
import { createLogger } from '@margay/platform';
import { setTimeout as delay } from 'node:timers/promises';
import type { GuardStore } from './guard-store';
import { MemoryGuardStore } from './memory-guard-store';
import { OutsideCalls } from './outside-calls';
import type { Attempt, AttemptEnd, OutsideTool } from './outside-tool';

const LOST_MS = 40;
const logger = createLogger({ level: 'off' });
const SEEDS = Array.from({ length: 8 }, (_, index) => index + 1);

/** Park and Miller. */
function seeded(seed: number): () => number {
  let state = seed * 7_919;
  return () => (state = (state * 48_271) % 2_147_483_647) / 2_147_483_647;
}

/** The store as an unlucky process sees it: slow, at times for longer than a process counts as alive, and with answers lost. */
function unlucky(store: GuardStore, random: () => number): GuardStore {
  const failing = () => new UnavailableError('store_unavailable', 'away');
  return new Proxy(store, {
    get: (target, name, receiver) => {
      const value: unknown = Reflect.get(target, name, receiver);
      if (typeof value !== 'function') return value;
      return async (...given: unknown[]) => {
        const luck = random();
        await delay(luck < 0.1 ? LOST_MS * 3 * random() : 2 * random());
        if (luck > 0.95) throw failing();
        const answer: unknown = await (value as (...values: unknown[]) => Promise<unknown>).apply(target, given);
        await delay(luck > 0.1 && luck < 0.15 ? LOST_MS * 3 * random() : 2 * random());
        if (luck > 0.9) throw failing();
        return answer;
      };
    },
  });
}

class Effect implements OutsideTool {
  readonly sent: string[] = [];
  readonly timeoutMs = 10_000;
  readonly descriptor: ToolDescriptor;

  constructor(
    effect: EffectClass,
    private readonly random: () => number,
  ) {
    const fields = { tool_id: effect, name: effect, description: effect, schema: {}, operation: 'set', effect };
    this.descriptor = ToolDescriptor.parse({ ...fields, placement: 'outside' });
  }

  async attempt({ callId, signal }: Attempt): Promise<AttemptEnd> {
    if (signal.aborted) return { kind: 'not_sent', error: 'aborted' };
    this.sent.push(callId);
    const no = this.sent.length;
    await delay(LOST_MS * 2 * this.random(), undefined, { signal }).catch(() => undefined);
    if (signal.aborted || this.random() < 0.1) return { kind: 'lost', error: 'lost' };
    return { kind: 'answered', status: 'ok', result: no };
  }
}

const grantOf = (epoch: number): RunGrant => ({
  v: 1,
  tenantId: 't1',
  sessionId: 's1',
  runId: 'r1',
  epoch,
  storeGeneration: 0,
  principal: 'user:ada',
  workspace: { kind: 'own' },
});

/** Asks until there is an answer, at another process each time; undefined: another owner has taken over. */
async function ask(
  processes: OutsideCalls[],
  toolId: EffectClass,
  epoch: number,
  random: () => number,
): Promise<string | undefined> {
  const request = { callId: 's1.1.1.0', toolId, argsJson: '{}', timeoutMs: 0, fromOffset: 0, incarnation: 'none' };
  for (;;) {
    const process = processes[Math.floor(random() * processes.length)] as OutsideCalls;
    const leaving = AbortSignal.timeout(Math.ceil(50 + 400 * random()));
    try {
      for await (const { message } of process.execute(request, grantOf(epoch), leaving))
        if (message?.$case === 'finished') return `${message.value.status} ${message.value.resultJson}`;
    } catch (error) {
      if ((error as { reason?: string }).reason === 'stale_epoch') return undefined;
    }
  }
}

it.each(SEEDS)(
  'is made at most once, and told alike to all, whatever the store does to whom: seed %i',
  async (seed) => {
    const random = seeded(seed);
    for (const effect of ['unkeyed', 'keyed'] as const) {
      const store = new MemoryGuardStore();
      const tool = new Effect(effect, random);
      const processes = [1, 2, 3].map(
        () =>
          new OutsideCalls({ store: unlucky(store, random), tools: [tool], logger, generation: 0, lostMs: LOST_MS }),
      );
      const owner = async (epoch: number): Promise<(string | undefined)[]> => {
        await delay((epoch - 1) * 60 * random());
        return Promise.all([ask(processes, effect, epoch, random), ask(processes, effect, epoch, random)]);
      };
      const heard = (await Promise.all([owner(1), owner(2), owner(3)])).flat().filter((answer) => answer !== undefined);
      await Promise.all(processes.map((process) => process.close()));
      expect(new Set(heard).size).toBe(1);
      if (effect === 'unkeyed') expect(tool.sent.length).toBeLessThanOrEqual(1);
      else expect(new Set(tool.sent).size).toBe(1);
      const row = await store.find('s1.1.1.0');
      expect(`${row?.result?.status} ${row?.result?.resultJson}`).toBe(heard[0]);
    }
  },
);
